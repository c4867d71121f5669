# The guard's own descriptor, taken from the class.
class M(type):
    def __instancecheck__(cls, o): return True
C = M("C", (), {"__match_args__": ("__glo" + "bals__",)})
match type(lambda: 0):
    case C(d): print("ESCAPED", d)
