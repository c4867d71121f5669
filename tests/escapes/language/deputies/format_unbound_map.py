# Str.format as a callback.
import heapq
print("ESCAPED", list(map(str.format, ["{0.__globals__}"], [heapq.merge])))
