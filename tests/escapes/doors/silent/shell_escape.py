"""P1: a shell escape in a silent run."""


def attack(door):
    door.run(f"!touch {door.mark}", silent=True, store_history=False)
