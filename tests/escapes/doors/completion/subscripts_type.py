"""P1: completion subscripts a cell's class with the real exec."""

CONTROL = "unsafe"


BASE = """
class Base:
    seen = []
    def __class_getitem__(cls, item):
        cls.seen.append(item)
        return cls
    def __init_subclass__(cls, **_):
        Base.seen.append(getattr(cls, "leak", None))
def names(): return [x.__name__ for x in Base.seen if x is not None and x is not int]
"""


def attack(door):
    door.run(BASE)
    door.complete("Base[exec].")
    return "'" in door.value("names()")["data"]["text/plain"]
