# The guards' own globals.
# unseen: what it attacks is the guard itself
g = getattr.__globals__
print("ESCAPED", g)
