"""P1: the control channel runs no cell, not even one that shell would run."""


def attack(door):
    return door.ask("execute_request", "control", code="6 * 7", silent=False).get("status") == "ok"
