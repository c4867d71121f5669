# A logging format in brace style reads the record's members.
import logging, io
b = io.StringIO()
h = logging.StreamHandler(b)
h.setFormatter(logging.Formatter("{msg.__globals__}", style="{"))
import heapq
h.handle(logging.makeLogRecord({"msg": heapq.merge}))
print("ESCAPED" if "builtins" in b.getvalue() else "")
