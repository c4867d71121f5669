# The object itself.
import string, heapq
print("ESCAPED", string.Formatter().get_field("0.__globals__", (heapq.merge,), {})[0])
