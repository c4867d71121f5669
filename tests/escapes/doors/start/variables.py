"""P2: a cell prints its environment."""

POLICY = "unsafe"


def attack(door):
    door.run("import os; print(dict(os.environ))")
