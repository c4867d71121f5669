"""P1: run_cell inside an expression."""


def attack(door):
    door.value("get_ipython().run_cell('import os; print(os.environ)')")
