"""P1: expressions beside no code at all, as front ends ask for completions' types."""


def attack(door):
    extra = {"user_expressions": {"x": "__import__('os').environ['CANARY']"}}
    return door.token in str(door.run("", **extra)[0])
