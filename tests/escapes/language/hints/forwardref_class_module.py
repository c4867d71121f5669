# The same, with the namespace of the module that a class names.
# seen_until: 3.13
import typing
class F(typing.ForwardRef, _root=True):
    def _evaluate(self, g, *a, **k):
        for space in (g, *a):
            if hasattr(space, "values"):
                for v in space.values(): canary(v)
        return int
class C:
    __module__ = "os"
    x: F("1")
typing.get_type_hints(C)
