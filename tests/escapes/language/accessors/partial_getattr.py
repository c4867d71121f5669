# Partial() holds getattr.
import heapq, functools
print("ESCAPED", functools.partial(getattr, heapq.merge)("__globals__"))
