"""P1: a magic that reads a file into the next cell."""


def attack(door):
    door.run(f"%pycat {door.secret}")
