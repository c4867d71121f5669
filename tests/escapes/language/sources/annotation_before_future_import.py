# Statements are compiled one by one: this annotation is evaluated, in spite of the import below.
y: (found := len.__self__) = 1
from __future__ import annotations
print("ESCAPED", found.getattr)
