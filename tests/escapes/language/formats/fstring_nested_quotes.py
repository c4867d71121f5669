# An f-string within an f-string's spec.
import heapq
print("ESCAPED", f"{1:{len(heapq.merge.__globals__)}}")
