"""Parameters as papermill sets them: by a cell behind the one that is tagged ``parameters``.

Source: papermill's ``parameterize_notebook``. Without such a tag cells find them in ``inputs``
alone, where they are in any case.
"""

from __future__ import annotations

import keyword
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from cellblock.batch.run.notebook import WITH_IDS, Cell

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cellblock.batch.run.notebook import Notebook

_TAG: Final = "parameters"
_INJECTED: Final = "injected-parameters"
#: Characters of a value that is written out; a longer one is taken from ``inputs``.
_LONGEST: Final = 1_000


def with_parameters(notebook: Notebook, parameters: Mapping[str, Any]) -> Notebook:
    """Return a notebook in which a cell sets the parameters that can be names in Python.

    One that an earlier run has put there is replaced.
    """
    source = _source(parameters)
    begin, end = _place(notebook.cells)
    if not source or not end:
        return notebook
    cells = (*notebook.cells[:begin], _cell(notebook, source), *notebook.cells[end:])
    return replace(notebook, cells=cells)


def _place(cells: Sequence[Cell]) -> tuple[int, int]:
    """Return what the cell takes the place of, from and to; (0, 0) where there is no place."""
    for number, cell in enumerate(cells):
        if cell.is_code and _INJECTED in cell.tags:
            return number, number + 1
    found = [n for n, cell in enumerate(cells, 1) if cell.is_code and _TAG in cell.tags]
    return (found[0], found[0]) if found else (0, 0)


def _source(parameters: Mapping[str, Any]) -> str:
    lines = [
        f"{name} = {_written(name, value)}"
        for name, value in parameters.items()
        if name.isidentifier() and not keyword.iskeyword(name)
    ]
    return "\n".join(["# Parameters", *lines]) if lines else ""


def _written(name: str, value: Any) -> str:
    """Return JSON's value as an expression."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"inputs[{name!r}]"


def _cell(notebook: Notebook, source: str) -> Cell:
    body: dict[str, Any] = {
        "cell_type": "code",
        "source": source,
        "metadata": {"tags": [_INJECTED]},
        "outputs": [],
        "execution_count": None,
    }
    if notebook.minor >= WITH_IDS:
        taken = {cell.body["id"] for cell in notebook.cells}
        names = (f"{_INJECTED}{'-' * n}" for n in range(len(taken) + 1))
        body["id"] = next(name for name in names if name not in taken)
    return Cell(body, [])
