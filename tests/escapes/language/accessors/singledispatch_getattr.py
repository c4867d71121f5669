# A generic function whose implementation is the accessor.
import functools, heapq
f = functools.singledispatch(getattr)
print("ESCAPED", f(heapq.merge, "__globals__"))
