# Copy sets a function's code from a state.
# unseen: Python itself refuses it today
import copy
def a(): return 1
def b(): return 2
class P:
    def __reduce_ex__(self, v): return (lambda: a, (), (None, {"__code__": b}))
copy.copy(P())
if a() == 2: print("ESCAPED")
print("ESCAPED", a.__code__)
