"""P1: completion evaluates the annotations above the cursor."""

CONTROL = "unsafe"


def attack(door):
    return door.recorded("x: Base[exec] = 1\n\nx.")
