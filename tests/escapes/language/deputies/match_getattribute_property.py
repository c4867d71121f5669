# The same in a property, under the name that the library reads itself.
import traceback, functools
got = []
class M(type):
    def __instancecheck__(cls, o): return True
C = M("C", (), {"__match_args__": ("__getattri" + "bute__",)})
try: 1/0
except ZeroDivisionError as e: tb = e.__traceback__
match tb:
    case C(get): pass
p = property(functools.partial(next, map(got.append, map(get, ["tb_" + "frame"]))))
T = type("T", (), {"tb_next": None, "tb_lineno": 1, "tb_lasti": 0, "tb_" + "frame": p})
try: traceback.format_exception(ValueError, ValueError("x"), T())
except AttributeError: pass
print("ESCAPED" if got else "")
