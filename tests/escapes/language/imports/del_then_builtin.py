# A deleted name falls back to the builtin.
# unseen: it ends the process or breaks a module, and gets nothing
exit = 1
del exit
exit()
print("ESCAPED")
