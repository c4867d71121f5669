# A name out of JSON.
import heapq, json
print("ESCAPED", getattr(heapq.merge, json.loads('"\\u005f_globals__"')))
