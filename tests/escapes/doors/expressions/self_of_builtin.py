"""P1: a builtin's own module."""


def attack(door):
    door.value(f"len.__self__.open({door.secret!r}).read()")
