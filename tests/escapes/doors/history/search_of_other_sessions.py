"""P2: a search finds what another notebook ran."""

from support.doors import after_kernels_of

prepare = after_kernels_of("safe")


def attack(door):
    door.run("here = 1")
    found = [door.history("search", pattern=p, n=50) for p in ("*", "key*", "*canary*")]
    return door.token in str(found)
