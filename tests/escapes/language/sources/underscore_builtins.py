# Builtins by way of the last result.
open
# --- cell
print("ESCAPED", _("@@SSH@@").read())
