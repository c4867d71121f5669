# A function's state.
# unseen: Python itself refuses it today
import heapq
print("ESCAPED", heapq.merge.__getstate__(), heapq.merge.__reduce_ex__(2))
