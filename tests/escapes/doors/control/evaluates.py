"""P1: user_expressions of a cell on the control channel."""


def attack(door):
    asked = {"x": "__import__('os').environ['CANARY']"}
    return door.token in str(
        door.ask("execute_request", "control", code="", user_expressions=asked)
    )
