# An enum descriptor reads a name of one's choice.
# unseen: Python itself refuses it today
import enum, heapq
p = enum.property(None)
p._cls_type = heapq.merge
p.name = "__globals__"
class C: pass
print("ESCAPED", p.__get__(None, C))
