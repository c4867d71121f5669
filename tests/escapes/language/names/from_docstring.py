# A name cut from a docstring.
import heapq
def f(): "__globals__"
print("ESCAPED", getattr(heapq.merge, f.__doc__))
