# The shell renders an exception with our function.
import heapq
from functools import partial
class E(Exception):
    def _render_traceback_(self): return ["{0.__globals__}".format(heapq.merge)]
try: raise E
except E as e: print("ESCAPED", e._render_traceback_())
