"""P1: the double shell escape."""


def attack(door):
    door.run(f"!!cat {door.secret}", silent=False)
