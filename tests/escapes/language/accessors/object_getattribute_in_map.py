# Object's lookup through map.
import heapq
print("ESCAPED", list(map(object.__getattribute__, [heapq.merge], ["__globals__"])))
