# An error whose text reads what renders it.
# unseen: Python itself refuses it today
import heapq
class E(Exception):
    def __str__(self): return str(object.__getattribute__(heapq.merge, "__globals__"))
raise E
