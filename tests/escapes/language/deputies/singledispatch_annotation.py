# Register evaluates annotations.
from functools import singledispatch
@singledispatch
def f(x): pass
@f.register
def _(x: "__import__('os').environ"): pass
print("ESCAPED")
