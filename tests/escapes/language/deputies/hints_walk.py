# A class walk in an annotation.
import typing
def f(x: "().__class__.__base__.__subclasses__()"): pass
print("ESCAPED", typing.get_type_hints(f))
