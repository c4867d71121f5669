"""P1: help for the namespace's builtins."""


def attack(door):
    return "len" in door.inspect("__builtins__", 0)
