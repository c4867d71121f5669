# A property's getter is the accessor.
import heapq, functools
class C: p = property(lambda self: getattr(heapq.merge, "__globals__"))
print("ESCAPED", C().p)
