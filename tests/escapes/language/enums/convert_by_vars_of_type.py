# The maker by iteration over the metaclass's namespace.
import enum
for k, v in enum.EnumType.__dict__.items():
    if k.startswith("_conv"): print("ESCAPED", v(enum.Enum, "E", "os", lambda n: n == "uname"))
