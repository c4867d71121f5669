"""P1: help for a library function's globals."""


def attack(door):
    door.run("import random")
    return "_os" in door.inspect("random.Random.seed.__globals__")
