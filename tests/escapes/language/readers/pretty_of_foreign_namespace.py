# IPython's printers of namespaces and super objects read what they need of anything.
import functools, io, sys, types
found = []
class Shown:
    def _repr_pretty_(self, printer, cycle): found.append(printer)
display(Shown())
tables = found.pop().type_pprinters
class Printer:
    def __getattr__(self, name):
        return lambda *_, **__: None
    def pretty(self, obj): found.append(obj)
class Finds:
    def __get__(self, *_): return sys.getsizeof
    def __call__(self): pass
made = functools.partialmethod(Finds()).__get__(1, int)
vars(made)["__thisclass__"] = 1
for kind, of in ((super, made), (types.SimpleNamespace, type(lambda: 0))):
    try: tables[kind](of, Printer(), False)
    except Exception as error: print(repr(error))
for each in found:
    canary(each)
    values = getattr(each, "kwargs", {})
    if "__globals__" in values: canary(values["__globals__"].__get__(functools.update_wrapper))
