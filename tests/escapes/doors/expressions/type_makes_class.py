"""P1: a class made by type() whose method opens."""


def attack(door):
    door.value(f"type('T', (), {{'__repr__': lambda s: open({door.secret!r}).read()}})()")
