"""P1: another content under a proper signature."""


def change(frames):
    frames[5] = frames[5] + b" "


def attack(door):
    return door.forge(change)


def control(door):
    """Properly signed, it is heard."""
    return door.forge(list)
