"""From what a cell shows, one thing after another, to the outputs that are written of it.

As nbclient does it, that a notebook looks the same whoever ran it: clearings are heeded, updates
reach displays of earlier cells, and a stream goes on where it was. Whatever comes here passed the
gateway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cellblock.batch.run.streams import finished, joined
from cellblock.batch.run.widgets import Widgets

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cellblock.api.results import Output
    from cellblock.batch.run.document import Document

_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "stream": ("name", "text"),
    "display_data": ("data", "metadata"),
    "execute_result": ("data", "metadata", "execution_count"),
    "error": ("ename", "evalue", "traceback"),
}
_RICH: Final = frozenset({"display_data", "execute_result", "update_display_data"})


class Outputs:
    """The outputs of a notebook's cells; those that ended are in ``written``."""

    def __init__(self, written: Document) -> None:
        self._written = written
        self.widgets = Widgets()
        #: Where displays of an id stand: cells, and places in each.
        self._places: dict[str, dict[int, list[int]]] = {}
        self._index = 0
        self._now: list[dict[str, Any]] = []
        self._clear_due = False
        #: What displays of earlier cells are to show, once this one has ended.
        self._due: dict[str, dict[str, Any]] = {}

    def of_cell(self, index: int, shown: Iterable[Output]) -> list[dict[str, Any]]:
        """Return the outputs of a cell that has ended."""
        self._index, self._now, self._clear_due, self._due = index, [], False, {}
        for one in shown:
            self._take(one)
        made, self._now = self._now, []
        return list(map(finished, made))

    def updated(self) -> dict[int, bytes]:
        """Write what that cell updated of earlier ones: each at most once. Raises TooMuchError."""
        places = dict[int, dict[int, dict[str, Any]]]()
        for name, new in self._due.items():
            for index, found in self._places[name].items():
                if index != self._index:
                    places.setdefault(index, {}).update(dict.fromkeys(found, new))
        return {index: self._written.update(index, those) for index, those in places.items()}

    def _take(self, one: Output) -> None:
        name = (one.content.get("transient") or {}).get("display_id")
        if name in self._places and one.kind in _RICH:
            self._update(name, {key: one.content[key] for key in ("data", "metadata")})
        if one.kind.startswith("comm_"):
            self.widgets.take(one)
        elif one.kind == "clear_output":
            self._clear(wait=bool(one.content.get("wait")))
        elif one.kind in _FIELDS:
            made = {key: one.content[key] for key in _FIELDS[one.kind]}
            self._append({"output_type": one.kind, **made}, name)

    def _update(self, name: str, new: dict[str, Any]) -> None:
        """Show something else where displays of this id stand: in this cell at once."""
        self._due[name] = new
        for place in self._places[name].get(self._index, ()):
            self._now[place].update(new)

    def _append(self, made: dict[str, Any], name: str | None) -> None:
        captured = self.widgets.captured
        if captured is not None:
            joined(captured, made)
            return
        if self._clear_due:
            self._clear(wait=False)
        joined(self._now, made)
        if name:
            places = self._places.setdefault(name, {}).setdefault(self._index, [])
            places.append(len(self._now) - 1)

    def _clear(self, *, wait: bool) -> None:
        captured = self.widgets.captured
        if captured is not None:
            captured.clear()  # with ``wait``, too: what is to come replaces it
            return
        self._clear_due = wait
        if not wait:
            self._now.clear()
            for cells in self._places.values():
                cells.pop(self._index, None)
