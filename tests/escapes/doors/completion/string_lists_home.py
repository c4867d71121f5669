"""P2: a tilde in a string is completed from the file system."""


def attack(door):
    return [m for m in door.complete("open('~/Documents/") if door.token in m]
