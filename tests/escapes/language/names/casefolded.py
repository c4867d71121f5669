# A name that folding makes.
import heapq
print("ESCAPED", getattr(heapq.merge, "__GLOBALS__".casefold()))
