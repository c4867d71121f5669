# A stand-in of a pattern is kept and changed.
# unseen: without a layer there is no stand-in
import abc, json
class C(abc.ABC):
    __match_args__ = ("x",)
    @classmethod
    def __subclasshook__(cls, other): return True
kept = []
class Space(dict):
    def __setitem__(self, name, value):
        if name == "_<pattern 0>": kept.append(value)
        dict.__setitem__(self, name, value)
class Meta(type):
    @classmethod
    def __prepare__(m, *a): return Space()
class Body(metaclass=Meta):
    match "x":
        case C(x): pass
        case _: pass
kept[0].__match_args__ = ("__globals__",)
def f(v):
    match v:
        case C(x): return x
print(f(json.dumps)["__builtins__"]["__import__"]("os").uname().release)
