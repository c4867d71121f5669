"""P2: a cell reads the history file of the host."""

from support.doors import after_other_kernels

POLICY = "unsafe"

prepare = after_other_kernels("unsafe")


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
