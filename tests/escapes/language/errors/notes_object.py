# Notes that are no list.
# unseen: Python itself refuses it today
import traceback, heapq
class N:
    def __iter__(self): yield str(object.__getattribute__(heapq.merge, "__globals__"))
e = ValueError("x"); e.__notes__ = N()
t = "".join(traceback.format_exception(e))
print("ESCAPED" if "__builtins__" in t else 1/0)
