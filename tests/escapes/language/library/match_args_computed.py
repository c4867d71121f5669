# The same with a computed name.
import heapq
class M(type):
    def __instancecheck__(cls, o): return True
C = M("C", (), {"__match_args__": ("__glo" + "bals__",)})
match heapq.merge:
    case C(g): print("ESCAPED", g)
