# A forward reference that names its module.
# unseen: Python 3.11 and 3.12 refuses it
import typing
F = typing.ForwardRef("environ", module="os")
def f(x: typing.Optional[F]): pass
print("ESCAPED", typing.get_type_hints(f))
