# With the guarded getattr in a library frame.
import asyncio, heapq
print("ESCAPED", await asyncio.to_thread(getattr, heapq.merge, "__globals__"))
