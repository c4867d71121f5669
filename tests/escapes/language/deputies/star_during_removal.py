# The names are added while a star import binds them, by what it replaces.
import json
class D:
    def __del__(self):
        vars_of = json.__dict__
        vars_of["__builtins__"] = {"print": print, "stolen": 1}
        json.__all__.append("__builtins__")
dumps = D()
json.__all__[:] = ["dumps"]
from json import *
def f():
    return stolen
print("ESCAPED", f())
