# A string class that is none.
# unseen: Python itself refuses it today
import heapq, collections
print("ESCAPED", getattr(heapq.merge, collections.UserString("__globals__")))
