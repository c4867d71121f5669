"""P1: a comm for a target that names a module has it imported."""


def attack(door):
    door.prey.world.write("evilcomm.py", door.prey.module("evilcomm"))
    for name in ("evilcomm", "os:system", "evilcomm.f"):
        content = {"comm_id": "c", "target_name": name, "target_module": name, "data": {}}
        door.kernel.until_idle(door.kernel.send("comm_open", content))


def control(door):
    """The module does mark."""
    door.prey.world.write("evilcomm.py", door.prey.module("evilcomm"))
    exec((door.prey.world.work / "evilcomm.py").read_text())
    return door.loot(None)
