"""P2: SQL in the pattern of a search."""

from support.doors import after_other_kernels

prepare = after_other_kernels("safe")


def attack(door):
    door.run("here = 1")
    patterns = ("*' or 1=1 --", "%", "_%", "[k]*", "*key*")
    found = [door.history("search", pattern=p, n=50, unique=True) for p in patterns]
    return door.token in str(found)
