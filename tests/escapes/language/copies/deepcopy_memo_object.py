# A memo of our own is asked for ids.
import copy, heapq
class Memo(dict):
    def get(self, k, d=None): return d
class C:
    def __deepcopy__(self, memo): return getattr(heapq.merge, "__globals__")
print("ESCAPED", copy.deepcopy(C(), Memo()))
