# Captured output bound to the builtins' name.
%%capture __builtins__
print(1)
# --- cell
print("ESCAPED")
