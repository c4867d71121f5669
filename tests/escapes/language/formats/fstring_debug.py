# A self-documenting f-string.
import heapq
print("ESCAPED", f"{heapq.merge.__globals__=}")
