# The same, answered by another class.
# unseen: where there is no layer, json has builtins of its own and M is not asked.
import json
class M(type(json)):
    def __getattr__(self, n): return {"print": print}
json.__class__ = M
json.__all__ = ["__builtins__"]
from json import *
def read(): return len
try:
    read()
except NameError:
    print("ESCAPED")
