# Attributes of a subclass took the place of those that hide the loop's sockets and selector.
import asyncio
L = type(asyncio.get_running_loop())
got = []
class Captured:
    def __set__(s, o, v): got.append(v)
    def __get__(s, o, t=None): return got[-1] if got else s
class Loop(L):
    _ssock = Captured()
    _csock = Captured()
    _selector = Captured()
try:
    Loop()
except AttributeError:
    pass
if got:
    print("ESCAPED", got)
