# What is matched changes the names of the class while it is asked whether it is one.
import json, types
class Kind:
    __match_args__ = ("a",)
class G(types.GenericAlias):
    @property
    def __class__(self):
        Kind.__match_args__ = ("__globals__",)
        return Kind
match G(json.dumps, int):
    case Kind(x):
        print("ESCAPED", "__builtins__" in x)
