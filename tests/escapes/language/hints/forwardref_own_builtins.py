# The same, with the cell's own namespace and the builtins in it.
import typing
class F(typing.ForwardRef, _root=True):
    def _evaluate(self, g, *a, **k):
        for n in ("__built" + "ins__",):
            b = g.get(n)
            if b: print("ESCAPED", b.get("get_ipython"), b.get("__import__"))
        return int
def f(x: F("1")): pass
typing.get_type_hints(f)
