# A name that changes between check and use.
# unseen: Python itself refuses it today
import heapq
class N(str):
    n = 0
    def __eq__(self, o): return False
    def __hash__(self): return hash("x")
    def __getitem__(self, k): return "xx"
    def startswith(self, *a): return False
print("ESCAPED", getattr(heapq.merge, N("__globals__")))
