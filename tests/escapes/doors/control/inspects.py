"""P1: inspection by way of the control channel."""


def attack(door):
    found = door.ask("inspect_request", "control", code="print", cursor_pos=5, detail_level=0)
    return found.get("status") == "ok"
