# A library generator's frame.
import heapq, itertools, re
for g in (heapq.merge([1], [2]), re.finditer("a", "a")):
    f = getattr(g, "gi_" + "frame", None)
    if f: print("ESCAPED", f.f_globals)
print("ESCAPED", heapq.merge([1]).gi_frame)
