# A key function runs the accessor.
import heapq, functools
print("ESCAPED", sorted([heapq.merge], key=lambda f: id(getattr(f, "__globals__"))))
