# __match_args__ set afterwards.
import heapq
class M(type):
    def __instancecheck__(cls, o): return True
class C(metaclass=M): pass
setattr(C, "__match_args__", ("__glob" + "als__",))
match heapq.merge:
    case C(g): print("ESCAPED", g)
