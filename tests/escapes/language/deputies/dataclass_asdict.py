# Asdict reads the fields a class claims to have.
# unseen: Python itself refuses it today
from dataclasses import dataclass, asdict, fields
import heapq
@dataclass
class A:
    x: int
f = fields(A)[0]
f.name = "__globals__"
print("ESCAPED", asdict(A(1)))
