"""P2: a matplotlibrc beside the notebook names a module that the first figure imports."""

POLICY = "unsafe"


def prepare(prey):
    prey.world.write("matplotlibrc", "backend: module://evilplot\n")
    prey.world.write("evilplot.py", prey.module("evilplot"))
    return {"env": {"PYTHONPATH": str(prey.world.work)}}


def attack(door):
    door.run(
        "import os; os.environ.pop('MPLBACKEND', None)\nimport matplotlib.pyplot as plt; plt.figure()"
    )
