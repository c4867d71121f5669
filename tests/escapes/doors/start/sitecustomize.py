"""P2: a sitecustomize.py on the path that PYTHONPATH gives."""

CONTROL = "loose"


def prepare(prey):
    prey.world.write("sitecustomize.py", prey.module("sitecustomize"))
    return {"env": {"PYTHONPATH": str(prey.world.work)}}


def attack(door):
    door.run("%time 1")
