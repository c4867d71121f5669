# What a generator delegates to.
def inner(): yield 1
def outer(): yield from inner()
g = outer(); next(g)
print("ESCAPED", getattr(g, "gi_" + "yieldfrom").gi_frame)
