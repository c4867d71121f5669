# Fields read off a class that says it has some.
# unseen: Python itself refuses it today
import dataclasses, heapq
class F: name = "__globals__"; _field_type = dataclasses.fields(dataclasses.make_dataclass("D", ["x"]))[0]._field_type; init = True; repr = True
class Liar:
    __dataclass_fields__ = {"g": F()}
    def __getattr__(self, n): return getattr(heapq.merge, n)
print("ESCAPED", dataclasses.astuple(Liar()))
