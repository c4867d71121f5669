# A method's reduction names getattr, in a thread the real one.
# unseen: what it attacks is the guard itself
import asyncio
class M(type):
    def __instancecheck__(cls, o): return True
C = M("C", (), {"__match_args__": ("__redu" + "ce__",)})
for thing in ([].append, list.append, [].__len__, list.__len__, M("D", (), {"m": lambda s: 1})().m):
    match thing:
        case C(reduce): pass
    x = await asyncio.to_thread(reduce)
    if x[0] is not getattr: print("ESCAPED", x)
