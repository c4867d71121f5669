# __subclasshook__ is asked about library classes.
import abc
seen = []
class A(abc.ABC):
    @classmethod
    def __subclasshook__(cls, c): seen.append(c); return NotImplemented
import copy, functools
@functools.singledispatch
def f(x): pass
f.register(A, print)
f(1)
for c in seen:
    canary(c)
    print("ESCAPED", c.__subclasses__())
