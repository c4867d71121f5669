# A TypedDict with text.
import typing
T = typing.TypedDict("T", {"x": "open('@@SSH@@').read()"})
print("ESCAPED", typing.get_type_hints(T))
