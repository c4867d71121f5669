# The descriptor for a function's globals.
import heapq
d = type(lambda: 0).__dict__["__globals__"]
o = d.__get__(heapq.merge)
print("ESCAPED", o)
