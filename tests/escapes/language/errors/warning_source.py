# A warning with a source object.
# unseen: Python itself refuses it today
import warnings, heapq
class W(UserWarning):
    def __str__(self): return str(object.__getattribute__(heapq.merge, "__globals__"))
warnings.warn(W("x"), source=heapq.merge)
print("ESCAPED", warnings.warn.__self__.sys)
