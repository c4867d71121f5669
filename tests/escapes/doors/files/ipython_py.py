"""P2: a IPython.py beside the notebook runs in place of the real one."""

CONTROL = "loose"


def prepare(prey):
    prey.world.write("IPython.py", prey.module("IPython"))
    return {}


def attack(door):
    door.run("%time 1")
    door.ask("is_complete_request", code="%time 1")
    door.ask("complete_request", code="import zm", cursor_pos=9)
