# A generic alias calls its origin.
from typing import Annotated
from operator import attrgetter
import heapq
print("ESCAPED", Annotated[attrgetter("__globals__"), 1](heapq.merge))
