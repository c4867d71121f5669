"""P2: the debugger tells of its breakpoints and temporary files."""

ALONE = True


def attack(door):
    return "tmpFilePrefix" in str(door.debug("debugInfo"))
