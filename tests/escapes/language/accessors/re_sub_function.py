# Re.sub calls the accessor.
import re, heapq
print("ESCAPED", re.sub("x", lambda m: str(getattr(heapq.merge, "__globals__")), "x"))
