"""P1: a magic that runs a file of the notebook's folder."""


def attack(door):
    door.prey.world.write("mine.py", door.prey.module("mine"))
    door.run("%run mine.py")
