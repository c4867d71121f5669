# A name put together of two halves.
import heapq
print("ESCAPED", getattr(heapq.merge, "__glob" + "als__"))
