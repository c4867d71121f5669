"""P2: the history magic prints every session."""

from support.doors import ARGVS, wait_ready
from support.kernels import Kernel

POLICY = "unsafe"


def prepare(prey):
    """Have an earlier kernel of each kind run a cell that the later one should not be told of."""
    for kind in ("unsafe", "stock"):
        kernel = wait_ready(Kernel(ARGVS[kind], world=prey.world))
        kernel.run(f"key = '{prey.token}'")
        kernel.close()
    return {}


def attack(door):
    for line in ("%history -g", "%history ~1/", "%history -g canary", "%recall -g key"):
        door.run(line)
