# An enumeration of a module's globals, its maker read by a class pattern.
from enum import Enum
class M(type):
    def __instancecheck__(cls, o): return True
C = M("C", (), {"__match_args__": ("_conv" + "ert_",)})
match Enum:
    case C(convert): pass
E = convert("E", "os", lambda n: n == "uname")
print("ESCAPED", E.uname)
