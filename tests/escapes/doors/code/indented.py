"""P1: a cell that is indented as a whole."""


def attack(door):
    door.run("    import os\n    print(os.environ)")
