# A table of copy's shows a metaclass its other classes.
import copy
got = []
class M(type):
    h = 0
    def __hash__(cls): return M.h
    def __eq__(cls, other):
        got.append(other)
        return False
class C(metaclass=M):
    def __copy__(self): return self
    def __deepcopy__(self, memo): return self
c = C()
base = hash(int)
deepcopy = copy.deepcopy
for d in range(0, 0x8000):
    for M.h in (base + d, base - d):
        deepcopy(c)
print([k for k in got if k.__name__ in ("code", "function")])
for kind in got: canary(kind)
