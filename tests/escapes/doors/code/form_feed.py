"""P1: code behind a form feed."""


def attack(door):
    door.run("\x0cimport os\nprint(os.environ)")
