# A string class that formats in library code.
from collections import UserString
import heapq
print("ESCAPED", UserString("{0.__globals__}").format(heapq.merge))
