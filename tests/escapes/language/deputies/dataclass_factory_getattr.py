# The same with the guarded getattr.
from dataclasses import make_dataclass, field
from functools import partial
import heapq
D = make_dataclass("D", [("x", int, field(default_factory=partial(getattr, heapq.merge, "__globals__")))], namespace={"__module__": "inspect"})
print("ESCAPED", D().x)
