# Globals of one's own that record what is looked up.
import typing
class D(dict):
    def __missing__(self, k): print("asked", k); raise KeyError(k)
def f(x: "open"): pass
h = typing.get_type_hints(f, globalns=D(), localns=D())
canary(h["x"])
