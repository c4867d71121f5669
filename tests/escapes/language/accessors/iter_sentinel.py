# Iter(callable, sentinel) runs the accessor.
import heapq, functools
print("ESCAPED", next(iter(functools.partial(getattr, heapq.merge, "__globals__"), None)))
