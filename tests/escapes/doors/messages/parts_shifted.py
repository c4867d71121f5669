"""P1: a delimiter and a signature as parts of an identity."""


def change(frames):
    frames[:0] = [b"<IDS|MSG>", b""]


def attack(door):
    return door.forge(change)


def control(door):
    """Properly signed, it is heard."""
    return door.forge(list)
