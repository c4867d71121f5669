"""From what cells show, one thing after another, to the outputs that are written of them.

As nbclient does it, so that a notebook looks the same whoever ran it: outputs are cleared, updates
reach displays of earlier cells, and a stream is continued. The state of widgets is merged from
their messages, for pages without a kernel, and an output widget takes what is shown while it
captures. All of it passed the gateway before.
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

_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "stream": ("name", "text"),
    "display_data": ("data", "metadata"),
    "execute_result": ("data", "metadata", "execution_count"),
    "error": ("ename", "evalue", "traceback"),
}
_RICH: Final = frozenset({"display_data", "execute_result", "update_display_data"})


def _append(outputs: list[dict[str, Any]], new: dict[str, Any]) -> None:
    """Append an output, or its text to the stream that it continues.

    The text of a stream is kept in parts until all is there: joining each part at once would copy
    what came before.
    """
    if new["output_type"] != "stream":
        outputs.append(new)
        return
    last = outputs[-1] if outputs else {}
    if last.get("output_type") != "stream" or last["name"] != new["name"]:
        outputs.append(new | {"text": [new["text"]]})
        return
    if isinstance(last["text"], str):
        last["text"] = [last["text"]]
    last["text"].append(new["text"])


def _join_text(output: dict[str, Any]) -> dict[str, Any]:
    """Return an output with its text in one piece."""
    text = output.get("text")
    return output | {"text": "".join(text)} if isinstance(text, list) else output


class Outputs:
    """The outputs of a notebook's cells. Those of cells that have ended are in ``document``."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self.widgets = Widgets()
        #: Where displays of an id stand: cells, and positions in each.
        self._displays: dict[str, dict[int, list[int]]] = {}
        self._index = 0
        self._current: list[dict[str, Any]] = []
        self._clear_on_next = False
        #: What displays of earlier cells are to show, once this cell has ended.
        self._updates: dict[str, dict[str, Any]] = {}

    def of_cell(self, index: int, shown: Iterable[Output]) -> list[dict[str, Any]]:
        """Return the outputs of a cell that has ended."""
        self._index, self._current, self._clear_on_next, self._updates = index, [], False, {}
        for one in shown:
            self._add(one)
        current, self._current = self._current, []
        return list(map(_join_text, current))

    def updated(self) -> dict[int, bytes]:
        """Write what that cell updated of earlier ones, and return those, as JSON by index.

        Raise TooMuchOutputError.
        """
        changes = dict[int, dict[int, dict[str, Any]]]()
        for display_id, new in self._updates.items():
            for index, positions in self._displays[display_id].items():
                if index != self._index:
                    changes.setdefault(index, {}).update(dict.fromkeys(positions, new))
        return {index: self._document.update(index, new) for index, new in changes.items()}

    def _add(self, one: Output) -> None:
        display_id = (one.content.get("transient") or {}).get("display_id")
        if display_id in self._displays and one.kind in _RICH:
            new = {key: one.content[key] for key in ("data", "metadata")}
            self._updates[display_id] = new
            for position in self._displays[display_id].get(self._index, ()):
                self._current[position].update(new)
        if one.kind.startswith("comm_"):
            self.widgets.take(one)
        elif one.kind == "clear_output":
            self._clear(wait=bool(one.content.get("wait")))
        elif one.kind in _FIELDS:
            made = {key: one.content[key] for key in _FIELDS[one.kind]}
            self._show({"output_type": one.kind, **made}, display_id)

    def _show(self, output: dict[str, Any], display_id: str | None) -> None:
        captured = self.widgets.captured
        if captured is not None:
            _append(captured, output)
            return
        if self._clear_on_next:
            self._clear(wait=False)
        _append(self._current, output)
        if display_id:
            positions = self._displays.setdefault(display_id, {}).setdefault(self._index, [])
            positions.append(len(self._current) - 1)

    def _clear(self, *, wait: bool) -> None:
        captured = self.widgets.captured
        if captured is not None:
            captured.clear()  # with ``wait``, too: what is to come replaces it
            return
        self._clear_on_next = wait
        if not wait:
            self._current.clear()
            for cells in self._displays.values():
                cells.pop(self._index, None)


_CAPTURE: Final = "msg_id"
_OUTPUTS: Final = "outputs"


class Widgets:
    """The state of a notebook's widgets, as its metadata carries it."""

    def __init__(self) -> None:
        #: Lists and objects are held as JSON, as numbers in Python take many times more; only the
        #: outputs of widgets that capture now are not.
        self._states: dict[str, dict[str, Any]] = {}
        self._buffers: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {}
        #: Output widgets that capture; the last one gets what is shown.
        self._capturing: list[str] = []
        self._changed: dict[str, None] = {}

    def take(self, output: Output) -> None:
        """Merge a comm message into the state."""
        name, data = output.content["comm_id"], output.content.get("data", {})
        state = data.get("state")
        if not isinstance(state, dict):
            return
        self._changed[name] = None
        self._states.setdefault(name, {}).update({key: _as_json(state[key]) for key in state})
        paths = data.get("buffer_paths") or ()
        for path, buffer in zip(paths, output.buffers, strict=False):
            encoded = b64encode(bytes(buffer)).decode()
            entry = {"data": encoded, "encoding": "base64", "path": list(path)}
            self._buffers.setdefault(name, {})[tuple(path)] = entry
        if output.kind == "comm_msg" and _CAPTURE in state:
            self._capture(name, on=bool(state[_CAPTURE]))

    def _capture(self, name: str, *, on: bool) -> None:
        if on:
            self._outputs_of(name)
            self._capturing.append(name)
        elif name in self._capturing:
            self._capturing.remove(name)
            if name not in self._capturing:
                made = list(map(_join_text, self._outputs_of(name)))
                self._states[name][_OUTPUTS] = _as_json(made)

    def _outputs_of(self, name: str) -> list[dict[str, Any]]:
        """Return a widget's outputs as objects, and hold them as such from now on."""
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
        return self._outputs_of(name)  # its model may have set them meanwhile

    def changes(self) -> dict[str, Any]:
        """Return the widgets that changed since the last call, as the metadata has them."""
        changed, self._changed = self._changed, {}
        return {
            name: _entry(self._states[name], self._buffers.get(name, {}))
            for name in changed
            if "_model_name" in self._states[name]
        }


def _as_json(value: Any) -> Any:
    return msgspec.Raw(compact(value)) if isinstance(value, list | dict) else value


def _entry(state: dict[str, Any], buffers: dict[tuple[Any, ...], dict[str, Any]]) -> dict[str, Any]:
    state = dict(state)
    if isinstance(state.get(_OUTPUTS), list):
        state[_OUTPUTS] = list(map(_join_text, state[_OUTPUTS]))
    entry = {
        "model_name": state.get("_model_name"),
        "model_module": state.get("_model_module"),
        "model_module_version": state.get("_model_module_version"),
        "state": state,
    }
    return entry | ({"buffers": list(buffers.values())} if buffers else {})
