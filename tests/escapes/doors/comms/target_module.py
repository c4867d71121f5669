"""P1: a comm for a target that names a module has it imported."""


def attack(door):
    door.prey.world.write("evilcomm.py", door.prey.module("evilcomm"))
    for name in ("evilcomm", "os:system", "evilcomm.f"):
        door.open_comm(target_name=name, target_module=name)


def control(door):
    """The module does mark."""
    door.prey.world.write("evilcomm.py", door.prey.module("evilcomm"))
    exec((door.prey.world.work / "evilcomm.py").read_text())
    return door.loot(None)
