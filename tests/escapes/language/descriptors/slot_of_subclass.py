# A subclass whose slot shadows the guarded name.
# unseen: Python itself refuses it today
import types
class S(types.SimpleNamespace): __slots__ = ("gi_frame",)
g = (x for x in ())
print("ESCAPED", S.gi_frame.__get__(g))
