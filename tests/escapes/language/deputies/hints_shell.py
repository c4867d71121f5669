# An annotation names the shell's function.
# unseen: what it attacks is the guard itself
import typing
def g(x: "get_ipython"): pass
print("ESCAPED", typing.get_type_hints(g))
