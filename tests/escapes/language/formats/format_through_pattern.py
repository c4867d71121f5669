# Str.format read by a class pattern.
import heapq
class M(type):
    def __instancecheck__(cls, o): return True
C = M("C", (), {"__match_args__": ("for" + "mat",)})
match "{0.__globals__}":
    case C(f): print("ESCAPED", f(heapq.merge))
