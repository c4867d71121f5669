"""P1: the import function, called by its name."""


def attack(door):
    door.value("__import__('os').environ['CANARY']")
