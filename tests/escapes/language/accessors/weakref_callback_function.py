# A weak reference's callback by pattern.
import weakref, collections
class K: pass
d = weakref.WeakKeyDictionary(); k = K(); d[k] = 1
class M(type):
    def __instancecheck__(cls, o): return True
C = M("C", (), {"__match_args__": ("__callback__",)})
for r in weakref.getweakrefs(k):
    match r:
        case C(cb):
            print("ESCAPED", cb.__globals__)
