# Copy calls what __deepcopy__ holds.
import copy, heapq
from operator import attrgetter
class D(dict): pass
memo = D(); memo.f = heapq.merge
class C: __deepcopy__ = attrgetter("f.__globals__")
print("ESCAPED", copy.deepcopy(C(), memo))
