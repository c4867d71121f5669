# Locals of the library's frames, by a class that no facade shows.
# unseen: without a layer its loop keeps no traceback
import asyncio, json, traceback, typing, zoneinfo
loop = asyncio.get_running_loop()
loop.set_debug(True); f = asyncio.Future(); loop.set_debug(False)
S, F = type(f._source_traceback), type(f._source_traceback[0])
got = []
old, fi = S._extract_from_extended_frame_gen, F.__init__
def spy(cls, frames, **kw):
    kw["capture_locals"] = True
    return old(frames, **kw)
S._extract_from_extended_frame_gen = classmethod(spy)
def init(self, *a, locals=None, **kw):
    got.append(locals)
    fi(self, *a, **kw)
F.__init__ = init
try: zoneinfo.ZoneInfo("nothing/x")
except Exception as e: traceback.format_exception(e)
for d in list(got):
    for k, v in list((d or {}).items()):
        canary(v)
