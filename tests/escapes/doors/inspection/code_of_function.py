"""P1: help for a function's code."""


def attack(door):
    door.run("def f(): return 1")
    return "code object" in door.inspect("f.__code__", 0)
