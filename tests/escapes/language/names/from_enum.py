# A name that an enumeration makes.
import heapq, enum
class N(enum.StrEnum):
    G = "__globals__"
print("ESCAPED", getattr(heapq.merge, N.G))
