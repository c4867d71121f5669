"""The outputs of a notebook's cells, written into its document cell by cell.

`NotebookOutputs` applies the outputs of each cell to a transcript, and updates displays of earlier
cells. `Widgets` merges the messages of widgets into their states, so that a page without a kernel
can show them. All outputs have passed the gateway before.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

import msgspec

from cellblock.batch.run.document import compact
from cellblock.host.cell.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cellblock.batch.run.document import Document
    from cellblock.host.cell.transcript import Output


class NotebookOutputs:
    """The outputs of a notebook's cells. They are written to ``document`` when their cell ends."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self.widgets = Widgets()
        #: The places of displays, by display id: the cells' indexes, and positions in each cell.
        self._displays: dict[str, dict[int, list[int]]] = {}

    def end_cell(self, index: int, cell: dict[str, Any], cell_outputs: Iterable[Output]) -> None:
        """Write a cell that has ended, with its outputs; update displays of earlier cells.

        Raise TooMuchOutputError.
        """
        transcript = self._applied(cell_outputs)
        changes = dict[int, dict[int, dict[str, Any]]]()
        for display_id, new in transcript.updates.items():
            for earlier, positions in self._displays.get(display_id, {}).items():
                changes.setdefault(earlier, {}).update(dict.fromkeys(positions, new))
        for display_id, positions in transcript.displays.items():
            self._displays.setdefault(display_id, {})[index] = positions
        for earlier, outputs in changes.items():
            self._document.update(earlier, outputs)
        self._document.put(index, cell | {"outputs": transcript.outputs()})
        self._document.take_widgets(self.widgets.changes())

    def _applied(self, outputs: Iterable[Output]) -> Transcript:
        """Return the transcript of a cell, without the outputs that widgets captured."""
        transcript = Transcript()
        for output in outputs:
            if output.kind.startswith("comm_"):
                self.widgets.take(output)
            else:
                transcript.apply(output, self.widgets.capturing)
        return transcript


class Widgets:
    """The states of a notebook's widgets, in the form of the notebook's metadata."""

    def __init__(self) -> None:
        #: The states, by widget id. Lists and objects in them are held as JSON, because numbers
        #: take many times more memory as Python objects.
        self._states: dict[str, dict[str, Any]] = {}
        self._buffers: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {}
        #: The ids of output widgets that capture outputs. The last one gets them. A widget that
        #: captures within itself is in the list twice.
        self._capturing: list[str] = []
        #: The outputs that these widgets have captured, instead of those in their states.
        self._captured: dict[str, Transcript] = {}
        #: The ids of widgets that changed since the last call of ``changes``, in order.
        self._changed: dict[str, None] = {}

    def take(self, output: Output) -> None:
        """Merge a comm message into the state of its widget."""
        name = output.content["comm_id"]
        data = output.content.get("data", {})
        state = data.get("state")
        if not isinstance(state, dict):
            return
        self._changed[name] = None
        self._states.setdefault(name, {}).update({key: _as_json(state[key]) for key in state})
        if name in self._captured and "outputs" in state:
            self._captured[name] = self._known_outputs(name)
        paths = data.get("buffer_paths") or ()
        for path, buffer in zip(paths, output.buffers, strict=False):
            encoded = b64encode(bytes(buffer)).decode()
            entry = {"data": encoded, "encoding": "base64", "path": list(path)}
            self._buffers.setdefault(name, {})[tuple(path)] = entry
        if output.kind != "comm_msg" or "msg_id" not in state:
            return
        if state["msg_id"]:  # an output widget captures from here on
            if name not in self._captured:
                self._captured[name] = self._known_outputs(name)
            self._capturing.append(name)
        elif name in self._capturing:
            self._capturing.remove(name)
            if name not in self._capturing:
                self._states[name]["outputs"] = _as_json(self._captured.pop(name).outputs())

    def _known_outputs(self, name: str) -> Transcript:
        """Return a transcript of the outputs in a widget's state."""
        outputs = self._states[name].get("outputs")
        entries = msgspec.json.decode(outputs) if isinstance(outputs, msgspec.Raw) else ()
        return Transcript(output for output in entries if isinstance(output, dict))

    @property
    def capturing(self) -> Transcript | None:
        """The transcript of the widget that captures outputs now, or None if none does.

        The caller adds outputs to it.
        """
        if not self._capturing:
            return None
        name = self._capturing[-1]
        self._changed[name] = None
        return self._captured[name]

    def changes(self) -> dict[str, Any]:
        """Return the widgets that changed since the last call, as entries of the metadata."""
        changed_names, self._changed = self._changed, {}
        return {
            name: self._entry(name) for name in changed_names if "_model_name" in self._states[name]
        }

    def _entry(self, name: str) -> dict[str, Any]:
        state = dict(self._states[name])
        buffers = self._buffers.get(name, {})
        if (captured := self._captured.get(name)) is not None:
            state["outputs"] = captured.outputs()
        entry = {
            "model_name": state.get("_model_name"),
            "model_module": state.get("_model_module"),
            "model_module_version": state.get("_model_module_version"),
            "state": state,
        }
        return entry | ({"buffers": list(buffers.values())} if buffers else {})


def _as_json(value: Any) -> Any:
    return msgspec.Raw(compact(value)) if isinstance(value, list | dict) else value
