# A template that is another string when it is split.
# unseen: Python itself refuses it today
import string, heapq
class N(str):
    def __str__(self): return "a"
class F(string.Formatter):
    def parse(self, t): return [("", N("0.__globals__"), "", None)]
print("ESCAPED", F().vformat("x", (heapq.merge,), {}))
