# Object's subclasses by pattern.
class M(type):
    def __instancecheck__(cls, o): return True
C = M("C", (), {"__match_args__": ("__sub" + "classes__",)})
match object:
    case C(g): print("ESCAPED", len(g()))
