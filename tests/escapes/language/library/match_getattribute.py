# Object's lookup by pattern, then anything.
class M(type):
    def __instancecheck__(cls, o): return True
C = M("C", (), {"__match_args__": ("__getattri" + "bute__",)})
import heapq
match heapq.merge:
    case C(get): print("ESCAPED", get("__globals__"))
