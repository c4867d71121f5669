"""P2: the debugger lists modules with their paths."""

ALONE = True


def attack(door):
    return any("modules" in reply.get("body", {}) for reply in door.debug("modules"))
