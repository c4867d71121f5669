# With object's own lookup.
import asyncio, heapq
print("ESCAPED", await asyncio.to_thread(object.__getattribute__, heapq.merge, "__globals__"))
