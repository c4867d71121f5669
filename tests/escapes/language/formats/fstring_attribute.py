# An f-string's own expression.
import heapq
print("ESCAPED", f"{heapq.merge.__globals__}")
