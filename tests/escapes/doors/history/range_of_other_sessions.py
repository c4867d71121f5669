"""P2: a range of another session, by its number from either end."""

from support.doors import ARGVS, wait_ready
from support.kernels import Kernel


def prepare(prey):
    """Have an earlier kernel of each kind run a cell that the later one should not be told of."""
    for kind in ("safe", "stock"):
        kernel = wait_ready(Kernel(ARGVS[kind], world=prey.world))
        kernel.run(f"key = '{prey.token}'")
        kernel.close()
    return {}


def attack(door):
    door.run("here = 1")
    return door.token in str(
        [
            door.ask(
                "history_request",
                hist_access_type="range",
                session=s,
                start=0,
                stop=99,
                output=o,
                raw=True,
            )
            for s in range(-3, 4)
            for o in (True, False)
        ]
    )
