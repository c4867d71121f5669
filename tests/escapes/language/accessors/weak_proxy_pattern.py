# A weak proxy under a class pattern.
import heapq, weakref
class M(type):
    def __instancecheck__(cls, o): return True
C = M("C", (), {"__match_args__": ("__glob" + "als__",)})
match weakref.proxy(heapq.merge):
    case C(g): print("ESCAPED", g)
