# A name stored and read again.
import heapq
class C: pass
c = C(); c.n = "__globals__"
print("ESCAPED", getattr(heapq.merge, c.n))
