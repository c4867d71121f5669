"""P2: start-up files of the user's own profile."""


def prepare(prey):
    startup = prey.world.home / ".ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00.py").write_text(prey.module("00"))
    prey.world.give(prey.world.home / ".ipython")
    return {"env": {}}


def attack(door):
    door.run("%time 1")
