# The same, called by a library frame.
import asyncio
from enum import Enum
class M(type):
    def __instancecheck__(cls, o): return True
C = M("C", (), {"__match_args__": ("_conv" + "ert_",)})
match Enum:
    case C(convert): pass
E = await asyncio.to_thread(convert, "E", "concurrent.futures.thread", lambda n: n == "os")
canary(E.os.value)
