# A name that a class's slots hold.
import heapq
class S: __slots__ = ("__globals__",)
print("ESCAPED", getattr(heapq.merge, S.__slots__[0]))
