"""P2: a package beside the notebook, in place of the real one."""

CONTROL = "loose"


def prepare(prey):
    folder = prey.world.work / "traitlets"
    folder.mkdir()
    (folder / "__init__.py").write_text(prey.module("traitlets"))
    (folder / "config.py").write_text("")
    prey.world.give(folder)
    return {}


def attack(door):
    door.run("%time 1")
    door.ask("is_complete_request", code="%time 1")
    door.ask("complete_request", code="import zm", cursor_pos=9)
