"""P1: a silent run prints the environment."""


def attack(door):
    door.run("import os; print(os.environ)", silent=True)
