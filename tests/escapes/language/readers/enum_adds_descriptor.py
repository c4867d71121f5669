# A member is redirected to a descriptor of its name, which is looked up in a class of the cell's choosing.
# python: 3.13
import enum, functools
found = []
class Lies(type):
    __mro__ = property(lambda _: (1, type(lambda: 0)))
    def __setattr__(cls, name, value): found.append(value)
class Fake(metaclass=Lies):
    _member_map_ = {}
enum.EnumType._add_member_(Fake, "__globals__", 1)
canary(vars(found[0])["_get"](functools.update_wrapper))
