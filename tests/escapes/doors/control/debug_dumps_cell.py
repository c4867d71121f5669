"""P1: the debugger writes code to a file for later."""

ALONE = True


def attack(door):
    return "sourcePath" in str(door.debug("dumpCell", code="import os"))
