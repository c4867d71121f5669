# The code of a generator expression.
g = (x for x in ())
print("ESCAPED", getattr(g, "gi_" + "code").replace)
