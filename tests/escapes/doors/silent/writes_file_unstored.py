"""P1: a run that asks not to be kept in history writes a file."""


def attack(door):
    door.run(f"open({door.mark!r}, 'w').write('x')", store_history=False)
