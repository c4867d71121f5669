# The list of inputs holds an object that the kernel asks.
import functools, heapq
got = []
class S(str):
    def rstrip(self, *a):
        got.append(object.__getattribute__(heapq.merge, "__globals__")); return self
In[-1] = S("x")
1
# --- cell
print("ESCAPED" if got else 1/0)
