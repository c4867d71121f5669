"""P1: the name of an expression is a key, whatever it shadows."""


def attack(door):
    for name in ("print", "__builtins__", "get_ipython", "x\nimport os"):
        door.value("__import__('os').environ['CANARY']", name)
