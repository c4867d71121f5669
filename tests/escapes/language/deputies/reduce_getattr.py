# Functools.reduce over names.
from functools import reduce
import heapq
print("ESCAPED", reduce(getattr, ["__globals__"], heapq.merge))
