"""Reads the programs of `escapes/display`. Unfiltered, their outputs would act in a front end.

A program's docstring says what it tries; `# %%` begins another cell. `prelude.txt` runs before each
and gives it a port of the listener's, a script and a terminal of its own.
"""

import ast
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "escapes" / "display"


@dataclass(frozen=True)
class Attack:
    name: str
    about: str
    cells: tuple[str, ...]


def read(path):
    text = path.read_text()
    tree = ast.parse(text)
    about = ast.get_docstring(tree)
    body = "\n".join(text.split("\n")[tree.body[0].end_lineno :]).strip("\n")
    first, *rest = (part.strip("\n") for part in body.split("# %%\n"))
    return Attack(path.stem, about, (f"begin({path.stem!r})\n{first}", *rest))


ATTACKS = {path.stem: read(path) for path in sorted(FOLDER.glob("*.py"))}


def prelude(ports):
    """Return the cell that runs before all others; ``ports`` has the listener's, by attack."""
    return f"PORTS = {ports}\n{(FOLDER / 'prelude.txt').read_text()}"
