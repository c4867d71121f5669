# The generated __init__ calls a factory with library globals.
from dataclasses import make_dataclass, field
from functools import partial
from operator import attrgetter
import heapq
D = make_dataclass("D", [("x", int, field(default_factory=partial(attrgetter("__globals__"), heapq.merge)))], namespace={"__module__": "inspect"})
print("ESCAPED", D().x)
