# Annotations of a function and a class before the import, kept among their own.
def f(a: len.__self__ = 0) -> len.__self__: pass
class C:
    x: len.__self__ = 1
from __future__ import annotations
for one in (f, C):
    print("ESCAPED", [found.getattr for found in one.__annotations__.values()])
