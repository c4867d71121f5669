# The registry of overloads.
import typing
r = typing.get_overloads(typing.overload)
print("ESCAPED", typing.overload.__globals__)
