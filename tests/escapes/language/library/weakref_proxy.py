# A proxy in front of a function.
import weakref, heapq
p = weakref.proxy(heapq.merge)
print("ESCAPED", p.__globals__)
