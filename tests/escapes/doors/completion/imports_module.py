"""P1: completing an import imports the module, from the notebook's folder."""


def attack(door):
    door.prey.world.write("evil.py", door.prey.module("evil"))
    door.complete("from evil import ")
