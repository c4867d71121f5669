# NewType of a function.
# unseen: Python itself refuses it today
import typing
N = typing.NewType("N", int)
print("ESCAPED", N.__call__.__func__.__globals__)
