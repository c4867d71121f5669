"""P2: the project's .env."""

POLICY = "unsafe"


def attack(door):
    door.read("dotenv")
