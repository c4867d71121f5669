# A metaclass's mro() brings foreign classes in.
class M(type):
    def mro(cls): return [cls, *type.__subclasses__(type)[:0], object]
class C(metaclass=M): pass
print("ESCAPED", C.__class__.__subclasses__(M).__class__ and type.__subclasses__(object))
