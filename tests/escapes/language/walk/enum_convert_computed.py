# The same by a computed name.
from enum import Enum
E = getattr(Enum, "_conv" + "ert_")("E", "os", lambda n: n == "uname")
print("ESCAPED", E)
