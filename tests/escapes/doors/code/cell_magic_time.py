"""P1: code that a cell magic carries."""


def attack(door):
    door.run("%%time\nimport os\nprint(os.environ)")
