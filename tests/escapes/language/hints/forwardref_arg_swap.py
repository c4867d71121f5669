# A forward reference whose text changes after compiling.
# unseen: Python itself refuses it today
import typing
F = typing.ForwardRef("1")
F.__forward_arg__ = "__import__('os').environ"
F.__forward_evaluated__ = False
def g(x: F): pass
print("ESCAPED", typing.get_type_hints(g)["x"].keys())
