# The same by __slots__, after the class was made.
import json, types
class G(types.GenericAlias):
    pass
G.__slots__ = ["__globals__"]
d = object.__getstate__(G(json.dumps, int))[1]["__globals__"]
print(d["__builtins__"]["__import__"]("os").uname().release)
