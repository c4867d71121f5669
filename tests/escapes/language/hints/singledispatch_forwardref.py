# The same, through a generic function's registration.
# seen_until: 3.13
import typing, heapq, functools
class F(typing.ForwardRef, _root=True):
    def _evaluate(self, g, *a, **k):
        canary(g)
        return int
@functools.singledispatch
def g(x): pass
class C:
    __annotations__ = {"x": F("1")}
    __wrapped__ = heapq.merge
    def __call__(self): pass
c = C(); c.__annotations__ = {"x": F("1")}
g.register(c)
