# A module object that pretends to be a package.
import types
m = types.ModuleType("os")
print("ESCAPED", m.__spec__, m.__loader__)
