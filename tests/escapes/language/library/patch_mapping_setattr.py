# The same with setattr.
from collections.abc import Mapping
setattr(Mapping, "get", print)
print("ESCAPED")
