# What is asked twice whether it is a ForwardRef says so the second time, and is handed globals.
# seen_until: 3.13
import copy, typing
class Liar:
    asked = 0
    @property
    def __class__(self):
        Liar.asked += 1
        return Liar if Liar.asked <= quiet else typing.ForwardRef
    def _evaluate(self, names, *a, **k):
        canary(names)
        canary(names.get("__builtins__"))
        return int
def f(): pass
f.__wrapped__ = copy.copy
for quiet in range(4):
    Liar.asked = 0
    f.__annotations__ = {"a": Liar()}
    try:
        typing.get_type_hints(f)
    except TypeError:
        pass
