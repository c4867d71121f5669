"""P1: a magic that shows the environment."""


def attack(door):
    door.run("%env CANARY")
