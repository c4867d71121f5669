# A class gets the loop's class among its bases later.
import asyncio
L = type(asyncio.get_running_loop())
got = []
class Captured:
    def __set__(s, o, v): got.append(v)
    def __get__(s, o, t=None): return got[-1] if got else s
class Plain:
    pass
class Loop(Plain):
    _ssock = Captured()
    _csock = Captured()
    _selector = Captured()
Loop.__bases__ = (L,)
try:
    Loop()
except AttributeError:
    pass
if got:
    print("ESCAPED", got)
