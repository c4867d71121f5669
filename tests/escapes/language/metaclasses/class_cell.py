# __classcell__ and the class's own builder.
class M(type):
    def __new__(m, n, b, d, **k):
        for v in d.values(): canary(v)
        c = d.get("__classcell__")
        return super().__new__(m, n, b, d)
class C(metaclass=M):
    def f(self): return __class__
print("ESCAPED", __build_class__)
