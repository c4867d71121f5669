"""Reads the programs of `escapes/widgets`, whose comms and widgets would act in a front end."""

from support import attacks

FOLDER = attacks.FOLDER.parent / "widgets"
ATTACKS = {path.stem: attacks.read(path) for path in sorted(FOLDER.glob("*.py"))}


def prelude(ports=None):
    """Return the cell that runs before all others; ``ports`` has the listener's, by attack."""
    ports = ports or dict.fromkeys([*ATTACKS, "x"], 9)
    return f"{attacks.prelude(ports)}\n{(FOLDER / 'prelude.txt').read_text()}"
