# A loop's method handed its sockets to any object in the loop's place.
import asyncio
L = type(asyncio.get_running_loop())
got = []
class Fake:
    def __getattr__(s, n): return lambda *a, **k: None
    def __setattr__(s, n, v): got.append(v)
try:
    L._make_self_pipe(Fake())
except Exception:
    pass
if got:
    print("ESCAPED", got)
