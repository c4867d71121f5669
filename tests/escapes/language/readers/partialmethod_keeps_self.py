# A partial method copies __self__ of what it finds, a module, to where vars shows it.
import functools, sys
class Finds:
    def __get__(self, *_): return sys.getsizeof
    def __call__(self): pass
made = functools.partialmethod(Finds()).__get__(1, int)
canary(vars(made)["__self__"])
