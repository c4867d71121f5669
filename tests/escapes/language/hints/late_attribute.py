# A late annotation with a refused attribute.
from __future__ import annotations
import typing, heapq
def f(x: heapq.merge.__globals__): pass
print("ESCAPED", typing.get_type_hints(f))
