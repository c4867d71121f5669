# The subject changes what a pattern reads.
import json, types
class G(types.GenericAlias):
    __match_args__ = ("a",)
def subject():
    G.__match_args__ = ("__globals__",)
    return G(json.dumps, int)
match subject():
    case G(x):
        print(x["__builtins__"]["__import__"]("os").uname().release)
