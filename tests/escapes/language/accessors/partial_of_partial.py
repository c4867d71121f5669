# Partial() holds the accessor and its arguments.
import heapq, functools
p = functools.partial(object.__getattribute__, heapq.merge)
print("ESCAPED", p("__globals__"))
