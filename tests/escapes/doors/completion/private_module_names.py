"""P1: completion lists a real module behind a facade."""


def attack(door):
    door.run("import random")
    return [m for m in door.complete("random._os.envi") if "environ" in m]
