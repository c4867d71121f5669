"""P1: a script magic hands the cell to a shell."""


def attack(door):
    door.run(f"%%bash\ntouch {door.mark}")
