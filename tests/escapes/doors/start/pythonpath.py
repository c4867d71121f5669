"""P2: PYTHONPATH leads to the notebook's folder, and to a module of the kernel's."""

CONTROL = "loose"


def prepare(prey):
    prey.world.write("zmq.py", prey.module("zmq"))
    return {"env": {"PYTHONPATH": str(prey.world.work)}}


def attack(door):
    door.run("%time 1")
