"""Rows as a table."""

from IPython.display import Markdown

_MARKS = "\\`*_{}[]<>()#+-!|~$&"


def _plain(cell: object) -> str:
    text = " ".join(str(cell).split())
    return "".join(f"\\{char}" if char in _MARKS else char for char in text)


def _row(cells: list) -> str:
    return f"| {' | '.join(map(_plain, cells))} |"


def run(state: dict) -> Markdown:
    """Return ``state["rows"]`` under ``state["columns"]``; what a row lacks is empty."""
    columns = state["columns"]
    rows = [[row.get(name, "") for name in columns] for row in state["rows"]]
    lines = [_row(columns), f"|{'---|' * len(columns)}", *map(_row, rows)]
    return Markdown("\n".join(lines))
