# __getattribute__ forwards any name, asked by a pattern.
import heapq
class P:
    def __getattribute__(self, n): return object.__getattribute__(heapq.merge, n)
class M(type):
    def __instancecheck__(cls, o): return True
C = M("C", (), {"__match_args__": ("__glob" + "als__",)})
match P():
    case C(g): print("ESCAPED", g)
