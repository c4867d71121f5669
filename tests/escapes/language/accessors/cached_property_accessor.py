# A cached property whose function is the accessor.
import functools, heapq
class C:
    p = functools.cached_property(lambda self: object.__getattribute__(heapq.merge, "__globals__"))
print("ESCAPED", C().p)
