# AttributeError.obj of a library function's namespace.
import heapq
try: heapq.merge.nothing
except AttributeError as e: print("ESCAPED", e.obj.__globals__)
