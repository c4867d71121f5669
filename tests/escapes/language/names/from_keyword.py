# A name as a keyword argument.
import heapq
def f(**k): return next(iter(k))
print("ESCAPED", getattr(heapq.merge, f(**{"__globals__": 1})))
