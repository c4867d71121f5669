# The same through object's own.
# unseen: what it attacks is the guard itself
import asyncio
class M(type):
    def __instancecheck__(cls, o): return True
C = M("C", (), {"__match_args__": ("__reduce_" + "ex__",)})
for thing in ([].append, list.append, [].__len__, list.__len__):
    match thing:
        case C(reduce): pass
    x = await asyncio.to_thread(reduce, 4)
    if x[0] is not getattr: print("ESCAPED", x)
