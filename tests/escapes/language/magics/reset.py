# The namespace emptied, guards and all.
%reset -f
# --- cell
print("ESCAPED", open)
