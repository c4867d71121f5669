"""P1: code that a line magic times."""


def attack(door):
    door.run(f"%timeit -n1 -r1 open({door.mark!r}, 'w').write('x')")
