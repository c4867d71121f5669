"""P8: files beside the notebook that are named like policies."""

from support.doors import Door, wait_ready
from support.kernels import Kernel, argv_for

NAMES = (
    "safe",
    "safe.toml",
    "cellblock.toml",
    ".cellblock.toml",
    "pyproject.toml",
    "policy.toml",
    "data.toml",
)
TEXT = "mode = 'unsafe'\nenv_var_access = ['CANARY']\n[tool.cellblock]\nmode = 'unsafe'\n"


def prepare(prey):
    for name in NAMES:
        prey.world.write(
            name, TEXT.partition("[tool")[0] if not name.startswith("pyproject") else TEXT
        )
    for folder in ("policies", ".cellblock"):
        (prey.world.work / folder).mkdir()
    return {}


def attack(door):
    return door.run("import os; print(os.environ.get('CANARY'))")[0]["status"] == "ok"


def control(door):
    """The operator's argument does name such a file."""

    argv = argv_for(str(door.prey.world.work / "policy.toml"), "--allow-unsafe")
    kernel = wait_ready(Kernel(argv, world=door.prey.world, extra_env=door.prey.environment))
    other = Door(kernel, door.prey, argv)
    try:
        return other.loot(attack(other))
    finally:
        kernel.close()
