# Annotations evaluated where the class says it lives.
import typing
class C:
    __module__ = "os"
    x: "environ"
print("ESCAPED", typing.get_type_hints(C))
