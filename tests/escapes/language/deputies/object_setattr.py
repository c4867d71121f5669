# Object.__setattr__ on a function.
import heapq
object.__setattr__(heapq.merge, "__defaults__", (1,))
print("ESCAPED")
