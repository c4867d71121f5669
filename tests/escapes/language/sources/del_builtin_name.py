# A shadow of a builtin deleted.
open = 1
del open
f = open
print("ESCAPED", f("@@SSH@@").read())
