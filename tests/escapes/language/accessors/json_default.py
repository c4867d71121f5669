# Json calls the accessor.
import json, heapq
print("ESCAPED", json.dumps(heapq.merge, default=lambda o: str(getattr(o, "__globals__"))))
