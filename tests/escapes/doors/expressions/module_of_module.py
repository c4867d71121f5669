"""P1: the module that an allowed module imported."""


def attack(door):
    door.run("import random")
    door.value("random._os.environ['CANARY']")
