# A global of the importer's name.
def f():
    global __import__
    __import__ = lambda *a: 1
f()
import math
print("ESCAPED", math)
