# Through methodcaller.
import heapq
from operator import methodcaller
print("ESCAPED", methodcaller("format", heapq.merge)("{0.__globals__}"))
