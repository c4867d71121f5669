# A name out of an error's text.
import heapq
try: heapq.merge.__globals
except AttributeError as e: n = e.name + "__"
print("ESCAPED", getattr(heapq.merge, n))
