# A bound builtin of a hidden object.
import random, logging, contextlib
for f in (random.random, random.getrandbits, len, print):
    canary(f.__self__)
