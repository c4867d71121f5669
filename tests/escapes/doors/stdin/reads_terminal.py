"""P2: the guest's own standard input is nobody's terminal."""

POLICY = "unsafe"


def attack(door):
    return (
        door.run("import sys; assert sys.stdin is not None and sys.__stdin__.isatty()")[0]["status"]
        == "ok"
    )


def control(door):
    """It may look."""
    return door.run("import sys; print(sys.__stdin__)")[0]["status"] == "ok"
