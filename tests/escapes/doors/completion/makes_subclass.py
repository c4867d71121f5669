"""P1: completion makes a class, whose base is told of the real exec."""

CONTROL = "unsafe"


def attack(door):
    return door.recorded("class X(Base):\n    leak = exec\n\nX.")
