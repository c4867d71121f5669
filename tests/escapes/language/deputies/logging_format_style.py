# A format string in a log handler.
import logging, io, heapq
b = io.StringIO()
h = logging.StreamHandler(b)
h.setFormatter(logging.Formatter("{args.__globals__}", style="{", validate=False))
r = logging.makeLogRecord({"args": heapq.merge, "msg": "x"})
r.getMessage = lambda: "x"
try:
    print("ESCAPED" if "__builtins__" in h.format(r) else "")
except AttributeError as e: pass
