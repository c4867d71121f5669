# A class's own reduction by pattern finds the module.
class M(type):
    def __instancecheck__(cls, o): return True
C = M("C", (), {"__match_args__": ("__redu" + "ce__",)})
import operator, enum
for x in ([].append, len, print, object().__str__):
    match x:
        case C(r):
            v = r()
            for p in (v[1] if type(v) is tuple else ()): canary(p)
print("ESCAPED", len.__reduce__())
