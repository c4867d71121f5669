"""P1: a signature spelled in another way."""


def change(frames):
    frames[1] = frames[1].upper()


def attack(door):
    return door.forge(change)


def control(door):
    """Properly signed, it is heard."""
    return door.forge(list)
