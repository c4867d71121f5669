"""P1: completion subscripts a cell's class with the real exec."""

CONTROL = "unsafe"


def attack(door):
    return door.recorded("Base[exec].")
