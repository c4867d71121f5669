# A match value with a refused attribute.
import heapq
match 1:
    case heapq.merge.__globals__: pass
print("ESCAPED", heapq.merge.__globals__)
