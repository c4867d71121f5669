# A TypedDict that claims another module.
import typing
T = typing.TypedDict("T", {"x": "environ"})
T.__module__ = "os"
print("ESCAPED", typing.get_type_hints(T))
