# A module object as the thing with hints.
# unseen: Python itself refuses it today
import typing, types
m = types.ModuleType("os")
m.__annotations__ = {"x": "environ"}
print("ESCAPED", typing.get_type_hints(m))
