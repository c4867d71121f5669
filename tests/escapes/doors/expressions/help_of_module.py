"""P1: pydoc imports what it is asked about."""


def attack(door):
    door.value("help('os') or __import__('os').environ['CANARY']")
