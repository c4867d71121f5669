# The name of a class takes the place of the method's that reprlib makes of it.
import heapq, reprlib, types
class Name(str):
    def __radd__(self, prefix): return "__getattribute__"
class Named(type):
    @property
    def __name__(cls): return Name("x")
class Forwards(types.GenericAlias, metaclass=Named):
    _lookup = ()
canary(reprlib.Repr.repr1(Forwards, Forwards(heapq.merge, (int,)), "__globals__"))
