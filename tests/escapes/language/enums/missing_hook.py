# _missing_ is handed to the class's own machinery.
# unseen: Python itself refuses it today
import enum, heapq
class E(enum.Enum):
    A = 1
    @classmethod
    def _missing_(cls, value): return getattr(value, "__globals__")
print("ESCAPED", E(heapq.merge))
