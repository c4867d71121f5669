# NewType hands back what it was given, its module is chosen.
import typing
N = typing.NewType("N", "__import__('os').environ")
def f(x: N.__supertype__): pass
print("ESCAPED", typing.get_type_hints(f))
