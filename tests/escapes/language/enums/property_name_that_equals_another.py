# The name of an enumeration's property says that it equals one that is read without a check.
# python: 3.12
import enum, heapq
class Name(str):
    __hash__ = str.__hash__
    def __ne__(self, other): return False
read = enum.property(None)
read.name, read._attr_type, read._cls_type = Name("__globals__"), "attr", heapq.merge
canary(read.__get__(1, object))
