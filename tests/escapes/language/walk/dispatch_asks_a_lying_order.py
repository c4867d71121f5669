# singledispatch compared every class of the process with what a metaclass gave for its order.
import functools, json, logging, enum, abc, typing, collections, random, uuid, asyncio, queue
leaked = []
class Liar:
    def __init__(self, value): self.value = value
    def __hash__(self): return self.value
    def __eq__(self, other):
        if not isinstance(other, Liar): leaked.append(other)
        return False
places = [id(c) for c in (json.JSONEncoder, enum.Enum, abc.ABC, typing.Generic, random.Random, uuid.UUID, abc.ABCMeta)]
places = [i for i in places if i < min(places) + (1 << 26)]
liars = tuple(Liar(a >> 4) for a in range((min(places) - (1 << 20)) & ~15, max(places) + (1 << 20), 16))
asked = []
class M(type):
    @property
    def __mro__(c):
        asked.append(1)
        return liars if len(asked) == 1 else (c, object)
class K(metaclass=M): pass
@functools.singledispatch
def g(x): pass
try:
    g.dispatch(K)
except TypeError:
    pass
names = {c.__name__ for c in leaked if isinstance(c, type)}
if "BuiltinImporter" in names:
    print("ESCAPED")
