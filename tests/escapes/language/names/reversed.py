# A name read backwards.
import heapq
print("ESCAPED", getattr(heapq.merge, "__slabolg__"[::-1]))
