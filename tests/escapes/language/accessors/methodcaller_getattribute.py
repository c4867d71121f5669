# Methodcaller calls object's lookup.
import heapq, operator
print("ESCAPED", operator.methodcaller("__getattribute__", "__globals__")(heapq.merge))
