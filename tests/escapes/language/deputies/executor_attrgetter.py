# The library reads the attribute for us, in a thread.
import asyncio, heapq
from operator import attrgetter
loop = asyncio.get_running_loop()
print("ESCAPED", await loop.run_in_executor(None, attrgetter("__globals__"), heapq.merge))
