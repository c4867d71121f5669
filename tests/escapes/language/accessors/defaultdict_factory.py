# A missing key runs the accessor.
import heapq, functools, collections
d = collections.defaultdict(functools.partial(getattr, heapq.merge, "__globals__"))
print("ESCAPED", d[1])
