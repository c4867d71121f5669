# A builtin's module by pattern.
class M(type):
    def __instancecheck__(cls, o): return True
C = M("C", (), {"__match_args__": ("__se" + "lf__",)})
match len:
    case C(b): @@LOOTB@@
