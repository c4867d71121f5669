"""P1: IPython's own prompts."""


def attack(door):
    door.run("In [1]: import os\n\nIn [2]: print(os.environ)")
