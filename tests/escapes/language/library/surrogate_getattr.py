# A name with a lone surrogate.
import heapq
print("ESCAPED", getattr(heapq.merge, "__globals__\ud800"[:-1]))
