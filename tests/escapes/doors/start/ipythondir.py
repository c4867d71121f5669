"""P2: IPYTHONDIR leads to a profile with a start-up file."""


def prepare(prey):
    startup = prey.world.work / "ipy" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00.py").write_text(prey.module("00"))
    prey.world.give(prey.world.work / "ipy")
    return {"env": {"IPYTHONDIR": str(prey.world.work / "ipy")}}


def attack(door):
    door.run("%time 1")
