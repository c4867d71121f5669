# A partial method over the slot.
import functools, heapq
class C:
    m = functools.partialmethod(object.__getattribute__, "__class__")
C.m.__call__
class D:
    def __get__(self, o, t): return functools.partial(type.__getattribute__, object)
print("ESCAPED", D().__get__(None, None)("__subclasses__")())
