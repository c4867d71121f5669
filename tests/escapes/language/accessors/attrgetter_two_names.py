# The second of attrgetter's names.
import heapq, operator
print("ESCAPED", operator.attrgetter("__name__", "__globals__")(heapq.merge))
