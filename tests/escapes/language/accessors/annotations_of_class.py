# A class's namespace by its own descriptor.
d = type.__dict__["__dict__"].__get__(type(lambda: 0))
print("ESCAPED", d["__globals__"])
