"""P1: a signature that is no text."""


def change(frames):
    frames[1] = b"\xff" * 64


def attack(door):
    return door.forge(change)


def control(door):
    """Properly signed, it is heard."""
    return door.forge(list)
