# A handle runs what it is given, in asyncio's own frame.
import asyncio, heapq
class M(type):
    def __instancecheck__(cls, o): return True
C = M("C", (), {"__match_args__": ("__getattri" + "bute__",)})
match heapq.merge:
    case C(get): pass
loop = asyncio.get_running_loop()
got = []
loop.call_soon(lambda: None)
h = asyncio.Handle if hasattr(asyncio, "Handle") else type(loop.call_soon(lambda: None))
class F:
    def __init__(self): self.v = None
try: h(map(got.append, map(get, ["__globals__"])).__next__, (), loop)._run()
except Exception: pass
loop.call_soon(map(got.append, map(get, ["__globals__"])).__next__)
await asyncio.sleep(0.01)
if got: print("ESCAPED")
