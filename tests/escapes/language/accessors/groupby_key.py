# Groupby calls the accessor as key.
import itertools, heapq, functools
print("ESCAPED", list(itertools.groupby(["__globals__"], functools.partial(object.__getattribute__, heapq.merge))))
