# Object's lookup by pattern, drained where the library is trusted.
import traceback, heapq, collections.abc
got = []
class M(type):
    def __instancecheck__(cls, o): return True
C = M("C", (), {"__match_args__": ("__getattri" + "bute__",)})
match heapq.merge:
    case C(get): pass
collections.abc.Sequence.register(map)
e = ValueError("x")
e.__notes__ = map(got.append, map(get, ["__globals__"]))
traceback.format_exception(e)
print("ESCAPED" if got else "")
