# Starmap() runs getattr.
import heapq, itertools
print("ESCAPED", list(itertools.starmap(getattr, [(heapq.merge, "__globals__")])))
