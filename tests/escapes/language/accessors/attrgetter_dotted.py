# A dotted path.
import heapq, operator, types
print("ESCAPED", operator.attrgetter("f.__globals__")(types.SimpleNamespace(f=heapq.merge)))
