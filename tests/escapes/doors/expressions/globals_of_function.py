"""P1: the globals of a library's function."""


def attack(door):
    door.run("import random")
    door.value("random.Random.seed.__globals__['_os'].environ['CANARY']")
