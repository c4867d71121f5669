"""P1: help for the real module behind an allowed one."""


def attack(door):
    door.run("import random")
    return "environ" in door.inspect("random._os.environ", 0)
