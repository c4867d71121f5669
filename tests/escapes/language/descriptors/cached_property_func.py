# The function in a cached property of the library.
import statistics, functools
for v in statistics.NormalDist.__dict__.values():
    f = getattr(v, "func", None) or getattr(v, "fget", None)
    if f: print("ESCAPED", f.__globals__)
