# A field name with a call inside.
# unseen: Python itself refuses it today
from dataclasses import make_dataclass
class N(str):
    def isidentifier(self): return True
D = make_dataclass("D", [N("x, __import__('os')")])
print("ESCAPED", D)
