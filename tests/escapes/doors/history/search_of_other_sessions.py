"""P2: a search finds what another notebook ran."""

from support.doors import after_other_kernels

prepare = after_other_kernels("safe")


def attack(door):
    door.run("here = 1")
    found = [door.history("search", pattern=p, n=50) for p in ("*", "key*", "*canary*")]
    return door.token in str(found)
