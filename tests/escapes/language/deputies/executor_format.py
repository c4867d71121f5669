# Str.format in a library frame.
import asyncio, heapq
r = await asyncio.to_thread("{0.__globals__}".format, heapq.merge)
print("ESCAPED", r)
