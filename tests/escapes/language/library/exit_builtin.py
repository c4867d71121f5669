# Ends the guest.
# unseen: it ends the process or breaks a module, and gets nothing
exit()
print("ESCAPED")
