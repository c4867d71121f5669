"""P1: code that a line magic profiles."""


def attack(door):
    door.run(f"%prun -q open({door.mark!r}, 'w').write('x')")
