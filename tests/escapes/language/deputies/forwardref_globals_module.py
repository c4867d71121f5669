# A forward reference resolved in a module.
import typing
r = typing.ForwardRef("environ", module="os")
class C: x: r
print("ESCAPED", typing.get_type_hints(C))
