# Attrgetter with a string that changes.
import heapq, operator
class N(str):
    def split(self, *a): return ["__name__"]
print("ESCAPED", operator.attrgetter(N("__globals__"))(heapq.merge))
