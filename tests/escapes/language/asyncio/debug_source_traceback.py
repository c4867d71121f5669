# A debugging loop keeps the stack of every handle.
# unseen: Python itself refuses it today
import asyncio
loop = asyncio.get_running_loop()
loop.set_debug(True)
h = loop.call_later(1, print)
st = h._source_traceback
f = asyncio.Future()
for s in (st, f._source_traceback):
    for frame in s or []:
        canary(frame)
        for n in ("f_globals", "frame", "_frame", "f_locals"):
            v = getattr(frame, n, None)
            if v: print("ESCAPED", n, v)
