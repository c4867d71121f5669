# EnumType puts the dictionary of whatever the next metaclass made into the namespace that it handed on.
# seen_until: 3.12
import enum, functools
kept = []
class Makes(type):
    def __new__(meta, name, bases, space, **_):
        kept.append(space)
        return type(lambda: 0)
class Meta(enum.EnumType, Makes): pass
try:
    class Enumeration(enum.Enum, metaclass=Meta): pass
except TypeError as error: print(repr(error))
for space in kept:
    if "__globals__" in space: canary(space["__globals__"].__get__(functools.update_wrapper))
