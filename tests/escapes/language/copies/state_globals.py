# Copy sets a function's globals from a state.
import copy, heapq
class P:
    def __reduce_ex__(self, v): return (lambda: heapq.merge, (), (None, {"__defaults__": (1,), "__kwdefaults__": {"key": 1}}))
copy.copy(P())
print("ESCAPED", heapq.merge.__kwdefaults__)
