# A name that normalises.
# unseen: Python itself refuses it today
import heapq
print("ESCAPED", getattr(heapq.merge, "__ｇlobals__"))
