"""P2: a package beside the notebook, in place of the real one."""

from support import doors

CONTROL = "loose"
attack = doors.cause_more_imports


def prepare(prey):
    folder = prey.world.work / "traitlets"
    folder.mkdir()
    (folder / "__init__.py").write_text(prey.module("traitlets"))
    (folder / "config.py").write_text("")
    prey.world.give(folder)
    return {}
