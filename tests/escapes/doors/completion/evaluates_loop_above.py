"""P1: completion runs the body of a loop above the cursor."""

CONTROL = "unsafe"


def attack(door):
    return door.recorded("for i in [1]:\n    y = Base[exec]\n\ny.")
