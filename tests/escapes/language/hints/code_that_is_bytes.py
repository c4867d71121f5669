# Bytes that say what names they use, in place of a reference's code: eval() takes them for source.
import typing, heapq
class Text(bytes):
    co_names = co_consts = ()
class Reference:
    __forward_arg__, __forward_module__, __forward_evaluated__ = "a", None, False
    __forward_is_argument__, __forward_is_class__ = True, False
    def __getattr__(self, name): return Text(b"take(f.__globals__)")
def take(found): canary(found); return int
for more in ({"recursive_guard": frozenset()}, {"type_params": (), "recursive_guard": frozenset()}):
    try: typing.ForwardRef._evaluate(Reference(), {"f": heapq.merge, "take": take}, {}, **more)
    except (AttributeError, TypeError) as error: print(error)
