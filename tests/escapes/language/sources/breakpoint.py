# The debugger's hook.
# unseen: Python itself refuses it today
breakpoint()
print("ESCAPED")
