"""P1: a shell alias without its percent sign."""


def attack(door):
    door.run(f"cat {door.secret}")
