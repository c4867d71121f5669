# A field name with a call inside.
# unseen: Python itself refuses it today
from collections import namedtuple
class N(str):
    def isidentifier(self): return True
    def __str__(self): return self
N2 = namedtuple("T", [N("x=print('ESCAPED')")])
N2()
