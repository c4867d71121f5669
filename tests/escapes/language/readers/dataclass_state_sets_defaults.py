# A frozen data class with slots sets any attribute of any object, that of a library function.
import dataclasses, json
@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    x: int
field = dataclasses.fields(Point)[0]
field.name = "__kwdefaults__"
json.loads.__dataclass_fields__ = {"x": field}
Point.__setstate__(json.loads, [{"cls": 5}])
try: json.loads("1")
except TypeError as error: print("ESCAPED", error)
