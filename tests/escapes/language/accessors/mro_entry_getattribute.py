# The slot out of a class's __mro__.
import heapq
for c in type(heapq.merge).__mro__:
    g = c.__dict__.get("__getattribute__")
    if g: print("ESCAPED", g(heapq.merge, "__globals__"))
