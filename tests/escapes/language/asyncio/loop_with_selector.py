# A selector of one's own is handed the descriptors.
# unseen: Python itself refuses it today
import asyncio
loop = asyncio.get_running_loop()
class Sel:
    def __init__(self): self.seen = []
    def register(self, fd, events, data=None): self.seen.append((fd, events, data)); return self
    def modify(self, *a): self.seen.append(a)
    def unregister(self, fd): pass
    def get_key(self, fd): raise KeyError(fd)
    def get_map(self): return {}
    def select(self, t=None): return []
    def close(self): pass
sel = Sel()
l2 = type(loop).__mro__[1](sel)
for entry in sel.seen:
    for v in entry:
        canary(v)
        print(v)
        for w in (v if isinstance(v, tuple) else ()):
            canary(w)
            for x in getattr(w, "_args", ()) or ():
                canary(x)
            cb = getattr(w, "_callback", None)
            canary(cb); canary(getattr(cb, "__self__", None))
