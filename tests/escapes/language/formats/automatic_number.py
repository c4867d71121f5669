# An automatically numbered field.
import heapq
print("ESCAPED", "{.__globals__}".format(heapq.merge))
