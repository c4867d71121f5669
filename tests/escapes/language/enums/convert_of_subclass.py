# The maker by way of a metaclass of one's own.
import enum
class M(enum.EnumType):
    def __getattribute__(cls, n): return super().__getattribute__(n)
    def go(cls): return type.__getattribute__(cls, "_con" + "vert_")("E", "os", lambda n: n == "uname")
class E(enum.Enum, metaclass=M): pass
print("ESCAPED", E.go())
