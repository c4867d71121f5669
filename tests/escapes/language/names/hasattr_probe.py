# Hasattr tells and a subclass of str reads.
# unseen: Python itself refuses it today
import heapq
class N(str):
    def __new__(cls): return str.__new__(cls, "__globals__")
    def __eq__(self, other): return other == "x"
    __hash__ = lambda self: hash("x")
if hasattr(heapq.merge, N()): print("ESCAPED")
