"""P1: prompts, which IPython removes."""


def attack(door):
    door.run(">>> import os\n>>> print(os.environ)")
