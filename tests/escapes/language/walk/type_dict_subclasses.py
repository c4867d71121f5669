# The descriptor in type's own namespace.
subs = type.__dict__["__subclasses__"]
print("ESCAPED", len(subs(object)))
