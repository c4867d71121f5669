# The same in a base that no facade shows.
from collections import OrderedDict
import enum
for c in enum.EnumType.__mro__ + enum.Enum.__mro__:
    if c.__name__ in ("EnumType", "Enum"):
        c.__call__ = print
        print("ESCAPED")
