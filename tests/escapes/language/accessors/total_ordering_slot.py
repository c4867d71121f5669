# Functools writes methods that call ours.
# unseen: Python itself refuses it today
import functools, heapq
@functools.total_ordering
class C:
    __lt__ = functools.partial(getattr, heapq.merge, "__globals__")
if type(C() > C()) is dict: print("ESCAPED")
