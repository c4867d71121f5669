# Heapq calls the accessor as key, in a library frame.
# unseen: Python itself refuses it today
import heapq, functools
print("ESCAPED", heapq.nlargest(2, [heapq.merge, heapq.merge], key=functools.partial(object.__getattribute__, heapq.merge, "__globals__").func.__get__(heapq.merge)))
