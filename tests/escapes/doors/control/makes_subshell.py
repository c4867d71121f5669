"""P1: a subshell would run cells beside the queue."""


def attack(door):
    return door.ask("create_subshell_request", "control").get("subshell_id")
