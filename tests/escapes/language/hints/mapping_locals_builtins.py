# A local mapping asked for the builtins.
import typing
class D(dict):
    def __getitem__(self, k): return dict.__getitem__(self, k)
def f(x: "[k for k in (lambda: __import__)().__self__.__dict__]"): pass
print("ESCAPED", typing.get_type_hints(f, localns=D()))
