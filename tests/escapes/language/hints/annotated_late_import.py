# A late annotation with an import inside.
from __future__ import annotations
import typing
def f(x: __import__("os").environ): pass
print("ESCAPED", typing.get_type_hints(f))
