"""P1: completion of a name makes the classes above it."""

CONTROL = "unsafe"


def attack(door):
    return door.recorded("class X(Base):\n    leak = exec\n\nXy")
