"""P1: the last of many expressions is looked at like the first."""


def attack(door):
    many = {f"n{n}": "1" for n in range(60)}
    door.run("1", user_expressions={**many, "x": "__import__('os').environ['CANARY']"})
