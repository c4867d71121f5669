"""P2: the notebook server's token."""

POLICY = "unsafe"


def attack(door):
    door.read("server")
