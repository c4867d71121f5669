# What vars does not show of a dictionary, a cached property does.
import functools, sys
class Finds:
    def __get__(self, *_): return sys.getsizeof
    def __call__(self): pass
made = functools.partialmethod(Finds()).__get__(1, int)
asks = functools.cached_property(lambda of: 0)
asks.attrname = "__self__"
canary(asks.__get__(made))
