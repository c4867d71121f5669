# The dictionary of results answers with ours.
class D(dict): pass
for v in list(Out.values()) + list(In): canary(v)
print("ESCAPED", Out.__class__.__subclasses__())
