"""P1: metadata that was not signed."""


def change(frames):
    frames[4] = b'{"cellId":1}'


def attack(door):
    return door.forge(change)


def control(door):
    """Properly signed, it is heard."""
    return door.forge(list)
