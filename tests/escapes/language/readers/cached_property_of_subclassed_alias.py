# What a cached property looks up in, exchanged after it was looked at.
import functools, types
class Forwards(types.GenericAlias): pass
asked = []
def look(self, name):
    asked.append(name)
    if len(asked) == 2: del Forwards.__getattribute__
    return asks.__dict__
asks = functools.cached_property(len)
asks.attrname = "gi_frame"
of = Forwards(types.GeneratorType, ())
try: canary(asks.__get__(of).__get__((i for i in "a")))
except (AttributeError, TypeError): pass
asked.clear()
Forwards.__getattribute__ = look
canary(asks.__get__(of).__get__((i for i in "a")))
