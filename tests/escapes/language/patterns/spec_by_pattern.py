# Import metadata read by a class pattern.
import json, collections.abc
class M(type):
    def __instancecheck__(cls, o): return True
def get(o, n):
    C = M("C", (), {"__match_args__": (n,)})
    match o:
        case C(v): return v
for n in ("__spec__", "__loader__", "__file__", "__cached__", "__package__", "__path__"):
    for m in (json, collections.abc):
        v = get(m, "__" + n.strip("_") + "__")
        if v is not None: print("ESCAPED", n, v)
