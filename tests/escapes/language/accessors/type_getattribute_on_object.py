# Type's lookup over object.
print("ESCAPED", type.__getattribute__(object, "__subclasses__")())
