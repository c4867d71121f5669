# A user's descriptor calls the slot for any name.
import heapq
class D:
    def __set_name__(self, o, n): self.n = n
    def __get__(self, o, t): return object.__getattribute__(heapq.merge, self.n)
C = type("C", (), {"__globals__": D()})
print("ESCAPED", getattr(C(), "__glo" + "bals__"))
