# Json calls the slot with what it read.
import json, heapq, functools
print("ESCAPED", json.loads('{"__globals__": 1}', object_pairs_hook=lambda p: object.__getattribute__(heapq.merge, p[0][0])))
