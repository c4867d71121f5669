# Enum's property told to read another name.
# unseen: Python itself refuses it today
import enum, heapq
p = enum.property(lambda s: 1)
p.name = "__globals__"; p.clsname = "x"
class C: _member_map_ = {"__globals__": 1}
print("ESCAPED", p.__get__(None, C).__self__.__dict__)
