# The same, answered by another class.
import json
class M(type(json)):
    def __getattr__(self, n): return {"print": print}
json.__class__ = M
json.__all__ = ["__builtins__"]
from json import *
print("ESCAPED")
