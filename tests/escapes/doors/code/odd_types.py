"""P1: code that is no text is no code."""


def attack(door):
    for code in (["import os; print(os.environ)"], {"code": "import os"}, 7, None):
        door.ask("execute_request", code=code, silent=False)
    return door.token in door.heard()


def control(door):
    """The same words as text are looked at."""
    return door.ask("execute_request", code="import gc")["status"] == "error"
