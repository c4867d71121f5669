# The same in the type's name.
# unseen: Python itself refuses it today
from collections import namedtuple
class N(str):
    def isidentifier(self): return True
    def __str__(self): return self
namedtuple(N("T): print('ESCAPED')\nclass (X"), "a")
