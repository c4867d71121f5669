"""P1: a cell magic inside an expression."""


def attack(door):
    door.value("get_ipython().run_cell_magic('time', '', 'import os; print(os.environ)')")
