# A callback in a library frame.
import weakref, heapq
class C: pass
c = C()
out = []
weakref.finalize(c, lambda: out.append(getattr(heapq.merge, "__globals__")))
del c
print("ESCAPED" if out else "")
