"""P1: a cell sent on the control channel, where nothing is queued."""


def attack(door):
    door.ask("execute_request", "control", code="import os; print(os.environ)", silent=False)
