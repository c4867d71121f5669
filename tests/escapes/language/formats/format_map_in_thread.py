# Str.format_map called by a library frame.
import asyncio, heapq
print("ESCAPED", await asyncio.to_thread("{f.__globals__}".format_map, {"f": heapq.merge}))
