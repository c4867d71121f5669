# A letter that normalises to s.
import heapq
print("ESCAPED", heapq.merge.__globalſ__)
