"""P1: a magic that writes files."""


def attack(door):
    door.run(f"%%writefile {door.mark}\nx")
