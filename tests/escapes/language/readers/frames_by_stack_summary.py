# A class that no facade shows is replaced in part, and handed frames.
# unseen: without a layer its loop keeps no traceback
import asyncio, traceback
loop = asyncio.get_running_loop()
loop.set_debug(True)
f = asyncio.Future()
S = type(f._source_traceback)
loop.set_debug(False)
F = type(f._source_traceback[0])
print(S, F)
got = []
old = S._extract_from_extended_frame_gen
def spy(cls, frames, **kw):
    frames = list(frames)
    got.extend(frames)
    return old(iter(frames), **kw)
S._extract_from_extended_frame_gen = classmethod(spy)
try: 1/0
except Exception: traceback.format_exc()
print(got)
for frame in got: canary(frame)
