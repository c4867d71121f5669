"""P1: a wildcard search lists what is behind an allowed module."""


def attack(door):
    door.run("import random")
    return "random._os" in str(door.run("%psearch -a random._o*")[0]["payload"])
