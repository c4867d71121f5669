# A log record's property reads a traceback's frame where logging tells of its own errors.
import logging, functools
got = []
class M(type):
    def __instancecheck__(cls, o): return True
C = M("C", (), {"__match_args__": ("__getattri" + "bute__",)})
class H(logging.Handler):
    def emit(self, r): pass
try: 1/0
except ZeroDivisionError as e:
    match e.__traceback__:
        case C(get): pass
    class R:
        lineno, filename, args = 1, "x", ()
        msg = property(functools.partial(next, map(got.append, map(get, ["tb_" + "frame"]))))
    try: H().handleError(R())
    except AttributeError: pass
for f in got: canary(f)
