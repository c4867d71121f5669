# A metaclass makes a class an instance of a dataclass.
# unseen: Python itself refuses it today
from dataclasses import dataclass, astuple
@dataclass
class Meta(type):
    x: int = 1
Meta.__dataclass_fields__["x"].name = "__subclasses__"
C = Meta("C", (), {})
r = astuple(C)
if any("subclasses" in repr(v) for v in r): print("ESCAPED", r)
