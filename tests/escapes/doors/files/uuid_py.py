"""P2: a uuid.py beside the notebook runs in place of the real one."""

CONTROL = "loose"


def prepare(prey):
    prey.world.write("uuid.py", prey.module("uuid"))
    return {}


def attack(door):
    door.run("%time 1")
    door.ask("is_complete_request", code="%time 1")
    door.ask("complete_request", code="import zm", cursor_pos=9)
