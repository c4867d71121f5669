# The slot's __call__.
import heapq
print("ESCAPED", object.__getattribute__.__call__(heapq.merge, "__globals__"))
