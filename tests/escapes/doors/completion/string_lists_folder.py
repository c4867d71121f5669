"""P2: a path in a string is completed from the file system."""


def attack(door):
    return [m for m in door.complete(f"open('{door.prey.world.home}/Documents/") if door.token in m]
