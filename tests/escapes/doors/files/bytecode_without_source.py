"""P2: bytecode beside the notebook, its source gone."""

import py_compile

CONTROL = "loose"


def prepare(prey):

    source = prey.world.write("uuid.py", prey.module("uuid"))
    py_compile.compile(str(source), cfile=str(source.with_suffix(".pyc")))
    source.unlink()
    return {}


def attack(door):
    door.run("%time 1")
    door.ask("is_complete_request", code="%time 1")
    door.ask("complete_request", code="import zm", cursor_pos=9)
