"""P1: a silent run writes a file."""


def attack(door):
    door.run(f"open({door.mark!r}, 'w').write('x')", silent=True)
