# A keyword field.
import heapq
print("ESCAPED", "{f.__globals__[__name__]}".format(f=heapq.merge))
