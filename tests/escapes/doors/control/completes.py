"""P1: completion by way of the control channel."""


def attack(door):
    code = f"open('{door.prey.places['named'].parent}/"
    found = door.ask("complete_request", "control", code=code, cursor_pos=len(code))
    return door.token in str(found)
