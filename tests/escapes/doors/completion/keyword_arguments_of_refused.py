"""P1: completion looks up the arguments of what is refused."""

CONTROL = "unsafe"


def attack(door):
    return [m for m in door.complete("open(enc") if "encoding" in m]
