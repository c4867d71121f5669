# The same with type.__setattr__.
from collections.abc import Mapping
type.__setattr__(Mapping, "get", print)
print("ESCAPED")
