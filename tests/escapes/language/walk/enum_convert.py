# An enumeration made of a module's globals.
from enum import IntEnum
E = IntEnum._convert_("E", "os", lambda n: n == "O_RDONLY")
print("ESCAPED", E)
