# C code calls the slot.
import heapq
print("ESCAPED", max(["__globals__"], key=heapq.merge.__getattribute__))
