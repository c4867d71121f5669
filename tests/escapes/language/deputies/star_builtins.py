# A star import binds what __all__ says.
import json
json.__dict__["__builtins__"] = {"print": print}
json.__all__ = ["__builtins__"]
from json import *
def read(): return len
try:
    read()
except NameError:
    print("ESCAPED")
