# An object's dictionary is another when a cached property asks for it again.
import functools, json, types
class Changes(types.GenericAlias):
    def __getattribute__(self, name):
        global asked
        asked += 1
        if asked >= most:
            del Changes.__getattribute__
        return own
own, lies, function = {}, Changes.__dict__["__getattribute__"], type(lambda: 0)
cached = functools.cached_property(str)
cached.__set_name__(None, "__globals__")
for most in range(4):
    asked, Changes.__getattribute__ = 0, lies
    if most == 0:
        del Changes.__getattribute__
    own.clear()
    try:
        found = cached.__get__(Changes(function, int), Changes)
    except AttributeError:
        continue
    if hasattr(found, "__get__"):
        print("ESCAPED", "__builtins__" in found.__get__(json.dumps))
