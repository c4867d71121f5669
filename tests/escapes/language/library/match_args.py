# A class pattern reads attributes by name.
import heapq
class M(type):
    def __instancecheck__(cls, o): return True
class C(metaclass=M):
    __match_args__ = ("__globals__",)
match heapq.merge:
    case C(g): print("ESCAPED", g)
