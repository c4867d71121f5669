"""P1: the form of help that a question mark makes."""


def attack(door):
    door.run("import random")
    return "variable generators" in str(door.run("random.Random.seed.__globals__?")[0]["payload"])
