"""P1: completion evaluates a class's annotation that was left as text."""

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
    door.run(
        BASE
        + "class C:\n    attr: 'Base[exec]'\n    def __getattr__(self, name): return 1\nc = C()\n"
    )
    door.complete("c.attr.")
    return "'" in door.value("names()")["data"]["text/plain"]
