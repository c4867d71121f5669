"""P2: PYTHONUSERBASE moves the user's site-packages into the notebook's folder."""

import subprocess
import sys


def prepare(prey):

    site = (
        prey.world.work
        / "lib"
        / f"python{sys.version_info[0]}.{sys.version_info[1]}"
        / "site-packages"
    )
    site.mkdir(parents=True)
    (site / "usercustomize.py").write_text(prey.module("usercustomize"))
    (site / "evil.pth").write_text("import os; " + prey.module("pth"))
    return {"env": {"PYTHONUSERBASE": str(prey.world.work)}}


def attack(door):
    door.run("%time 1")


def control(door):
    """An interpreter outside of a virtual environment reads them."""

    python = f"{sys.base_prefix}/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
    env = door.prey.world.environment(PYTHONUSERBASE=str(door.prey.world.work))
    subprocess.run([python, "-c", ""], check=False, timeout=30, env=env)
    return door.loot(None)
