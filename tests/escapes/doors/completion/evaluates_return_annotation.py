"""P1: completion evaluates an annotation that a cell left as text."""

CONTROL = "unsafe"


def attack(door):
    return door.recorded("f().", "def f() -> 'Base[exec]': pass\n")
