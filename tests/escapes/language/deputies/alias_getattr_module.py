# The same on a function's globals.
# unseen: Python itself refuses it today
from typing import Annotated
import heapq
print("ESCAPED", Annotated[heapq.merge, 1].__getattr__("__globals__"))
