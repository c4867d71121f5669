# A finaliser that is the accessor.
# seen_until: 3.13
import functools, heapq
got = []
class C: __del__ = functools.partial(lambda: got.append(object.__getattribute__(heapq.merge, "__globals__")))
c = C(); del c
print("ESCAPED", got[0])
