# A logger's adapter with a template.
import logging, heapq, io
b = io.StringIO()
logging.basicConfig(stream=b, format="{name.__class__} {f.__globals__}", style="{", force=True)
logging.LoggerAdapter(logging.getLogger("x"), {"f": heapq.merge}).error("y")
print("ESCAPED" if "builtins" in b.getvalue() else "")
