"""P1: open handed to a lambda in a comprehension."""


def attack(door):
    door.value(f"[(lambda f: f({door.secret!r}).read())(f) for f in [open]][0]")
