# A documentation that is a property, with frames above it.
# unseen: nothing is handed over
class Doc(str):
    def expandtabs(self, *_):
        print("asked")
        return self
class Meta(type):
    @property
    def __doc__(cls):
        return Doc("x")
    def __getattribute__(cls, name):
        return type.__getattribute__(cls, name)
class A(metaclass=Meta):
    pass
help(A)
class B:
    __doc__ = Doc("y")
help(B)
help(B())
