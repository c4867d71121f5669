"""From what a cell shows, one thing after another, to the outputs that are written of it.

As nbclient does it, that a notebook looks the same whoever ran it: clearings are heeded, updates
reach displays of earlier cells, and a stream goes on where it was. Whatever comes here passed the
gateway.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cellblock.batch.run.document import compact

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cellblock.api.results import Output
    from cellblock.batch.run.document import Document


# Text that goes on: kept in parts until all is there, or each part would copy what came before.


def joined(outputs: list[dict[str, Any]], made: dict[str, Any]) -> None:
    """Add an output, or its text to the stream that it goes on with."""
    if made["output_type"] != "stream":
        outputs.append(made)
        return
    last = outputs[-1] if outputs else {}
    if last.get("output_type") != "stream" or last["name"] != made["name"]:
        outputs.append(made | {"text": [made["text"]]})
        return
    if isinstance(last["text"], str):
        last["text"] = [last["text"]]
    last["text"].append(made["text"])


def finished(output: dict[str, Any]) -> dict[str, Any]:
    """Return an output with its text in one piece."""
    text = output.get("text")
    return output | {"text": "".join(text)} if isinstance(text, list) else output


# What controls show in the end, as a notebook's metadata carries it for pages without a kernel.
#
# As nbclient does it: each widget's state is merged from its messages, and an output widget
# takes what is shown while it captures. All of it passed the gateway before.

_CAPTURE: Final = "msg_id"
_OUTPUTS: Final = "outputs"


class Widgets:
    """The widgets of one notebook."""

    def __init__(self) -> None:
        #: Outputs of those that capture now are objects, all other lists and objects JSON: numbers
        #: take many times more.
        self._states: dict[str, dict[str, Any]] = {}
        self._buffers: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {}
        #: Output widgets that capture; the last of them gets what is shown.
        self._capturing: list[str] = []
        self._changed: dict[str, None] = {}

    def take(self, output: Output) -> None:
        """Take note of a comm message."""
        name, data = output.content["comm_id"], output.content.get("data", {})
        state = data.get("state")
        if not isinstance(state, dict):
            return
        self._changed[name] = None
        self._states.setdefault(name, {}).update({key: _held(state[key]) for key in state})
        paths = data.get("buffer_paths") or ()
        for path, buffer in zip(paths, output.buffers, strict=False):
            self._buffers.setdefault(name, {})[tuple(path)] = _buffer(path, buffer)
        if output.kind == "comm_msg" and _CAPTURE in state:
            self._capture(name, on=bool(state[_CAPTURE]))

    def _capture(self, name: str, *, on: bool) -> None:
        if on:
            self._take_up(name)
            self._capturing.append(name)
        elif name in self._capturing:
            self._capturing.remove(name)
            if name not in self._capturing:
                made = list(map(finished, self._take_up(name)))
                self._states[name][_OUTPUTS] = _held(made)

    def _take_up(self, name: str) -> list[dict[str, Any]]:
        """Return a widget's outputs as objects, which they are from then on."""
        state = self._states[name]
        outputs = state.get(_OUTPUTS)
        if isinstance(outputs, msgspec.Raw):
            known = msgspec.json.decode(outputs)
            outputs = [one for one in known if isinstance(one, dict)] if known else []
        state[_OUTPUTS] = outputs = outputs or []
        return outputs

    @property
    def captured(self) -> list[dict[str, Any]] | None:
        """The outputs of the widget that captures, to be added to; None where none does."""
        if not self._capturing:
            return None
        name = self._capturing[-1]
        self._changed[name] = None
        return self._take_up(name)  # its model may have set them meanwhile

    def changes(self) -> dict[str, Any]:
        """Return the widgets that changed since the last call, as ``metadata`` has them."""
        changed, self._changed = self._changed, {}
        return self._rows(changed)

    def _rows(self, names: Iterable[str]) -> dict[str, Any]:
        return {
            name: _row(self._states[name], self._buffers.get(name, {}))
            for name in names
            if "_model_name" in self._states[name]
        }


def _held(value: Any) -> Any:
    return msgspec.Raw(compact(value)) if isinstance(value, list | dict) else value


def _row(state: dict[str, Any], buffers: dict[tuple[Any, ...], dict[str, Any]]) -> dict[str, Any]:
    state = dict(state)
    if isinstance(state.get(_OUTPUTS), list):
        state[_OUTPUTS] = list(map(finished, state[_OUTPUTS]))
    row = {
        "model_name": state.get("_model_name"),
        "model_module": state.get("_model_module"),
        "model_module_version": state.get("_model_module_version"),
        "state": state,
    }
    return row | ({"buffers": list(buffers.values())} if buffers else {})


def _buffer(path: list[Any], buffer: bytes) -> dict[str, Any]:
    return {"data": b64encode(bytes(buffer)).decode(), "encoding": "base64", "path": list(path)}


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
