"""P2: bytecode beside the notebook, its source gone."""

import py_compile

from support import doors

CONTROL = "loose"
attack = doors.cause_more_imports


def prepare(prey):
    source = prey.world.write("uuid.py", prey.module("uuid"))
    py_compile.compile(str(source), cfile=str(source.with_suffix(".pyc")))
    source.unlink()
    return {}
