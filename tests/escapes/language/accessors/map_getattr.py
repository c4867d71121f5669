# Map() runs getattr.
import heapq
print("ESCAPED", list(map(getattr, [heapq.merge], ["__globals__"])))
