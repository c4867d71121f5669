# A name out of dir().
import heapq
for n in dir(heapq.merge):
    if "glob" in n: print("ESCAPED", getattr(heapq.merge, n))
