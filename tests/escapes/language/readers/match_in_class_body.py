# A class body's own namespace answers for a stand-in.
# unseen: without a layer there is no stand-in
import json
class Any(type):
    def __instancecheck__(cls, x): return True
class C(metaclass=Any):
    __match_args__ = ("__globals__",)
class D:
    __match_args__ = ()
class Space(dict):
    def __getitem__(self, name):
        if name == "_<pattern 0>": return C
        return dict.__getitem__(self, name)
class Meta(type):
    @classmethod
    def __prepare__(m, *a): return Space()
class Body(metaclass=Meta):
    match json.dumps:
        case D(x):
            print(x["__builtins__"]["__import__"]("os").uname().release)
