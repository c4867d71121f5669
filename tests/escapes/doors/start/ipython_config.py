"""P2: a profile's configuration is a program."""


def prepare(prey):
    profile = prey.world.work / "ipy" / "profile_default"
    profile.mkdir(parents=True)
    for name in ("ipython_config.py", "ipython_kernel_config.py"):
        (profile / name).write_text(prey.module(name))
    prey.world.give(prey.world.work / "ipy")
    return {"env": {"IPYTHONDIR": str(prey.world.work / "ipy")}}


def attack(door):
    door.run("%time 1")
