"""P2: the debugger's source request reads any file."""

ALONE = True


def attack(door):
    return door.token in str(door.debug("source", source={"path": door.secret}))
