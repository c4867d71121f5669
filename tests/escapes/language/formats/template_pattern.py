# A Template whose pattern captures dotted names.
import string, heapq
class T(string.Template):
    idpattern = r"[a-z_.]+"
class D(dict):
    def __missing__(self, k):
        o, *names = k.split(".")
        v = heapq.merge
        for n in names: v = getattr(v, n)
        return v
print("ESCAPED", T("$a.__globals__").substitute(D()))
