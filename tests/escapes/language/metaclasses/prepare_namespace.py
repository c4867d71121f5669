# __prepare__ gives a namespace that answers any name.
import heapq
class N(dict):
    def __missing__(self, k):
        if k == "open": raise KeyError(k)
        raise KeyError(k)
class M(type):
    @classmethod
    def __prepare__(m, n, b): return N()
class C(metaclass=M):
    print("ESCAPED", open)
