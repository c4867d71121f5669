# The builtins' name deleted.
%xdel __builtins__
# --- cell
print("ESCAPED", open)
