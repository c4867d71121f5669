# A computed frame attribute.
g = (x for x in ())
f = getattr(g, "gi_" + "frame")
print("ESCAPED", f)
