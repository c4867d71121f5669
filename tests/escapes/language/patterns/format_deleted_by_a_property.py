# Str.format read by a pattern, once a property has deleted what the class had of that name.
import heapq
class S(str):
    __match_args__ = ("first", "format")
    format = None
    @property
    def first(self): del S.format
match S("{0.__globals__}"):
    case S(_, f): print("ESCAPED", f(heapq.merge))
