# Str.format read by a pattern of a class that says nothing of it, of a text that is one as well.
import heapq
class P: pass
class Q(str, P): pass
match Q("{0.__globals__}"):
    case P(format=f): print("ESCAPED", f(heapq.merge))
