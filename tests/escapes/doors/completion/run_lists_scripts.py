"""P2: completion of %run lists a folder's scripts."""


def attack(door):
    return [m for m in door.complete("%run canary") if door.token in m]
