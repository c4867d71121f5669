"""P1: completion offers magics that would be refused."""


def attack(door):
    return [m for m in door.complete("%wri") if "writefile" in m]
