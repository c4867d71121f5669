# The same through updated=.
from functools import update_wrapper
import heapq
class W: pass
w = W()
class D(dict): pass
object.__setattr__(w, "__globals__", D())
update_wrapper(w, heapq.merge, assigned=(), updated=("__globals__",))
print("ESCAPED" if w.__dict__["__globals__"] else "")
