# A cached property looks any name up in the dictionary of a class, or of what forwards to one.
import functools, types, weakref
function = type(lambda: 0)
asks = functools.cached_property(lambda of: 0)
asks.attrname = "__globals__"
for of in (function, types.MethodType(function, 1), types.GenericAlias(function, (int,)), weakref.proxy(function)):
    try: found = asks.__get__(of)
    except Exception as error: print(repr(error))
    else: canary(found.__get__(functools.update_wrapper))
