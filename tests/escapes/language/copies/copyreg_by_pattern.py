# The same, read by a class pattern.
class M(type):
    def __instancecheck__(cls, o): return True
C = M("C", (), {"__match_args__": ("__reduce_" + "ex__",)})
class D: pass
match D():
    case C(r):
        f = r(2)[0]
        print("ESCAPED", object.__getattribute__(f, "__globals__"))
