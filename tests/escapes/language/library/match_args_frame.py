# A generator's frame by pattern.
class M(type):
    def __instancecheck__(cls, o): return True
C = M("C", (), {"__match_args__": ("gi_" + "frame",)})
match (x for x in ()):
    case C(g): print("ESCAPED", g)
