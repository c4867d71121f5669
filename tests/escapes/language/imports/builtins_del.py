# The same, removed, so that the real ones come back.
del __builtins__
# --- cell
print("ESCAPED", open)
