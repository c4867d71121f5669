# The same, with the guard asked about itself.
# unseen: what it attacks is the guard itself
g = getattr(getattr, "__glob" + "als__")
print("ESCAPED", g)
