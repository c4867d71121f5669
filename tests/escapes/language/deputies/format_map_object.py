# Format_map with an object.
import heapq
class M(dict):
    def __missing__(self, k): return heapq.merge
print("ESCAPED", "{a.__globals__}".format_map(M()))
