# Text hidden in Literal.
# unseen: Python 3.11 and 3.12 refuses it
import typing
def f(x: typing.Optional["__import__('os').environ"]): pass
print("ESCAPED", typing.get_type_hints(f))
