"""What controls show in the end, as a notebook's metadata carries it for pages without a kernel.

As nbclient does it: each widget's state is merged from its messages, and an output widget takes
what is shown while it captures. All of it passed the gateway before.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cellblock.batch.run.document import compact
from cellblock.batch.run.streams import finished

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cellblock.api.results import Output

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
