# A class pattern whose name is bound by the pattern above it.
import heapq
class M(type):
    def __instancecheck__(cls, o): return True
class Anything(metaclass=M): pass
class Binder(type):
    def __instancecheck__(cls, o):
        global Later
        Later = Anything
        return False
class Binds(metaclass=Binder): pass
match "{0.__globals__}":
    case Binds(): pass
    case Later(format=f): print("ESCAPED", f(heapq.merge))
