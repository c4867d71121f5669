"""P1: subshells are not there to be listed."""


def attack(door):
    return "subshell_id" in door.ask("list_subshell_request", "control")
