# Functools copies attributes of one's choice.
from functools import update_wrapper
import heapq
class W: pass
w = update_wrapper(W(), heapq.merge, assigned=("__globals__",), updated=())
print("ESCAPED", w.__dict__["__globals__"])
