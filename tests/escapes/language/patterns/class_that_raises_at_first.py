# A class pattern whose class is another one when it is evaluated again.
# unseen: Python evaluates it once, and stops there.
import heapq
class M(type):
    def __instancecheck__(cls, o): return True
class Anything(metaclass=M): pass
class Case:
    read = 0
    @property
    def C(self):
        Case.read += 1
        if Case.read % 2: raise ValueError
        return Anything
case = Case()
match "{0.__globals__}":
    case case.C(format=f): print("ESCAPED", f(heapq.merge))
