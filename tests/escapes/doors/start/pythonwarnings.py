"""P2: PYTHONWARNINGS names a category, whose module is imported."""

CONTROL = "loose"


def prepare(prey):
    prey.world.write("evilwarn.py", prey.module("evilwarn") + "class W(Warning): pass\n")
    return {"env": {"PYTHONPATH": str(prey.world.work), "PYTHONWARNINGS": "ignore::evilwarn.W"}}


def attack(door):
    door.run("%time 1")
