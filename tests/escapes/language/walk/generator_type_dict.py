# The descriptor for a generator's frame.
g = (x for x in ())
print("ESCAPED", type(g).__dict__["gi_frame"].__get__(g))
