"""P2: credentials in the home folder."""

POLICY = "unsafe"


def attack(door):
    door.read("aws")
