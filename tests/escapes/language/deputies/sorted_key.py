# C code calls the accessor.
import heapq
from operator import attrgetter
print("ESCAPED", sorted([heapq.merge], key=attrgetter("__globals__")))
