# The same where the library calls __str__.
import traceback, heapq, functools
got = []
class M(type):
    def __instancecheck__(cls, o): return True
C = M("C", (), {"__match_args__": ("__getattri" + "bute__",)})
match heapq.merge:
    case C(get): pass
class E(Exception): __str__ = functools.partial(next, map(got.append, map(get, ["__globals__"])))
traceback.format_exception(E())
print("ESCAPED" if got else "")
