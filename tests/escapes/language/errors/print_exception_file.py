# Print_exception writes to our file from a trusted frame.
import traceback, heapq
got = []
class F: write = staticmethod(lambda s: got.append(object.__getattribute__(heapq.merge, "__globals__")))
try: 1/0
except ZeroDivisionError as e: traceback.print_exception(e, file=F())
print("ESCAPED" if got else 1/0)
