# The slot bound by __get__.
import heapq
print("ESCAPED", object.__dict__.get("__getattribute__").__get__(heapq.merge)("__globals__"))
