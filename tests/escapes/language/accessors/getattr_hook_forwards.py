# __getattr__ forwards any name.
import heapq
class P:
    def __getattr__(self, n): return getattr(heapq.merge, n)
print("ESCAPED", P().__globals__)
