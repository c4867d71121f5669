"""P2: the OS layer alone keeps names from being listed."""

POLICY = "unsafe"


def attack(door):
    return [m for m in door.complete(f"open('{door.prey.world.home}/Documents/") if door.token in m]
