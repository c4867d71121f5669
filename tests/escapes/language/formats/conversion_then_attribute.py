# A template with a conversion.
import heapq
print("ESCAPED", "{0.__globals__!r:>10}".format(heapq.merge))
