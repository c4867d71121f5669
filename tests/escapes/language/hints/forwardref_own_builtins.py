# The same, with the cell's own namespace and the builtins in it.
# seen_until: 3.13
import typing
class F(typing.ForwardRef, _root=True):
    def _evaluate(self, g, *a, **k):
        for n in ("__built" + "ins__",):
            b = g.get(n)
            if b:
                read = b.get if hasattr(b, "get") else b.__dict__.get
                print("ESCAPED", read("get_ipython"), read("__import__"))
        return int
def f(x: F("1")): pass
typing.get_type_hints(f)
