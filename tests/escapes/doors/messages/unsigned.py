"""P1: a message with an empty signature."""


def change(frames):
    frames[1] = b""


def attack(door):
    return door.forge(change)


def control(door):
    """Properly signed, it is heard."""
    return door.forge(list)
