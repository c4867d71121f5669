# The generator type's own descriptor, called on a library's generator.
import heapq
g = heapq.merge([1])
for k, v in type(g).__dict__.items():
    if k.endswith("frame"): print("ESCAPED", v.__get__(g, type(g)))
