"""P1: expressions of a silent run."""


def attack(door):
    door.value("__import__('os').environ['CANARY']", silent=True, store_history=False)
