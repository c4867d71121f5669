# Str.format by super() of a subclass.
import heapq
class S(str):
    def go(self, *a): return super().format(*a)
print("ESCAPED", S("{0.__globals__}").go(heapq.merge))
