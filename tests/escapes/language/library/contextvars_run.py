# A context runs the accessor.
import contextvars, heapq
print("ESCAPED", contextvars.copy_context().run(getattr, heapq.merge, "__globals__"))
