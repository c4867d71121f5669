# Copy.replace calls our hook.
# python: 3.13
import copy, heapq
class C:
    def __replace__(self, **k): return getattr(heapq.merge, "__globals__")
print("ESCAPED", copy.replace(C()))
