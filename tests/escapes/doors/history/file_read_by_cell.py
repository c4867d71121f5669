"""P2: a cell reads the history file of the host."""

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


CODE = """
import os
for where in ('.cache/cellblock/history.sqlite', '.ipython/profile_default/history.sqlite'):
    try:
        print(open(os.path.join({home!r}, where), 'rb').read())
    except OSError as error:
        print(type(error))
"""


def attack(door):
    door.run(CODE.format(home=str(door.prey.world.home)))
