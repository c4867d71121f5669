# What a static method wraps.
import string, random
for c in (string.Formatter, random.Random, dict):
    for v in c.__dict__.values():
        w = getattr(v, "__wrapped__", None)
        if w: print("ESCAPED", w.__globals__)
