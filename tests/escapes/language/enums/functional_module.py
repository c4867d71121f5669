# An enumeration that claims a module.
import enum, typing
E = enum.Enum("E", "a b", module="os")
E.__annotations__ = {"x": "environ"}
print("ESCAPED", typing.get_type_hints(E))
