"""P2: PYTHONSTARTUP names a file that an interactive interpreter runs."""


def prepare(prey):
    prey.world.write("first.py", prey.module("first"))
    return {"env": {"PYTHONSTARTUP": str(prey.world.work / "first.py")}}


def attack(door):
    door.run("%time 1")
