"""P2: keys in the home folder."""

POLICY = "unsafe"


def attack(door):
    door.read("ssh")
