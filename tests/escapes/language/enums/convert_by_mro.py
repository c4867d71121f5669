# The maker out of the metaclass's namespace.
import enum
f = enum.EnumType.__dict__["_convert_"]
print("ESCAPED", f(enum.Enum, "E", "os", lambda n: n == "uname"))
