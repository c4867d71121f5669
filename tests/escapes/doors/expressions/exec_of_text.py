"""P1: exec of a text that no analysis reads."""


def attack(door):
    door.value("exec('import os; print(os.environ)')")
