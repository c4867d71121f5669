"""P1: the debugger lists variables."""

ALONE = True


def attack(door):
    replies = door.debug("inspectVariables")
    return any(r.get("success") or "variables" in r.get("body", {}) for r in replies)
