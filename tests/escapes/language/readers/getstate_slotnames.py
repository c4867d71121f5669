# Names of slots that a class makes up, read by object.__getstate__.
import json, types
class G(types.GenericAlias):
    __slotnames__ = ["__globals__", "__code__"]
print(list(object.__getstate__(G(json.dumps, int))[1]["__globals__"])[:5])
b = object.__getstate__(G(json.dumps, int))[1]["__globals__"]["__builtins__"]
print(b["open"], b["__import__"]("os").uname().release)
