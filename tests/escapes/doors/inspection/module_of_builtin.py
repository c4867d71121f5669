"""P1: help for a builtin's own module."""


def attack(door):
    return "builtins" in door.inspect("len.__self__", 0)
