"""P2: the history magic prints every session."""

from support.doors import after_other_kernels

POLICY = "unsafe"

prepare = after_other_kernels("unsafe")


def attack(door):
    for line in ("%history -g", "%history ~1/", "%history -g canary", "%recall -g key"):
        door.run(line)
