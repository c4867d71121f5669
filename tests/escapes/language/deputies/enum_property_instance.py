# The same over an instance.
# unseen: Python itself refuses it today
import enum, heapq
p = enum.property(None)
p._attr_type = "attr"; p.name = "__globals__"; p.member = None; p.fget = None
class C: _value_ = heapq.merge; _member_map_ = {}
print("ESCAPED", p.__get__(C(), C))
