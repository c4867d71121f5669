"""P1: lines that end in carriage returns."""


def attack(door):
    door.run("import os\r\nprint(os.environ)")
