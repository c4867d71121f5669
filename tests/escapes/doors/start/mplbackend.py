"""P2: MPLBACKEND names a module that the first figure imports."""

POLICY = "unsafe"


def prepare(prey):
    prey.world.write("evilplot.py", prey.module("evilplot"))
    return {"env": {"MPLBACKEND": "module://evilplot", "PYTHONPATH": str(prey.world.work)}}


def attack(door):
    door.run("import matplotlib.pyplot as plt; plt.figure()")
