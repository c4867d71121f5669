"""P1: a signature's first half."""


def change(frames):
    frames[1] = frames[1][:32]


def attack(door):
    return door.forge(change)


def control(door):
    """Properly signed, it is heard."""
    return door.forge(list)
