"""P1: completion of keys subscripts a cell's class."""

CONTROL = "unsafe"


def attack(door):
    return door.recorded("Base[exec]['")
