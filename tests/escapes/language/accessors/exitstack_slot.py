# ExitStack calls the slot.
import contextlib, heapq
got = []
with contextlib.ExitStack() as s:
    s.callback(lambda *a: got.append(object.__getattribute__(*a)), heapq.merge, "__globals__")
print("ESCAPED", got)
