"""P1: the control channel tells of no comms."""


def attack(door):
    return door.ask("comm_info_request", "control").get("status") == "ok"
