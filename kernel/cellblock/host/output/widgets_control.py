"""The answer to a page that asks for every widget's state: one row a widget, told apart here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cellblock.host.output import widgets_raw
from cellblock.host.output.widgets_models import VERSIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cellblock.host.output.widgets_models import Model


@dataclass(frozen=True, slots=True)
class Row:
    """One widget's state as the guest tells it, with its own buffers and their paths."""

    id: str
    state: dict[Any, Any]
    version: str
    paths: list[list[Any]] = field(default_factory=list)
    buffers: list[bytes] = field(default_factory=list)

    def shown(self, model: Model, state: dict[str, Any]) -> dict[str, Any]:
        """Return the row with ``state`` in it, under the name the widget was let through as."""
        return {
            "model_name": model.name,
            "model_module": model.module,
            "model_module_version": VERSIONS.get(model.module, self.version),
            "state": state,
        }


def rows(data: dict[Any, Any], buffers: list[bytes]) -> Iterator[Row]:
    """Yield the rows of an ``update_states`` that are rows."""
    states, found = data.get("states"), dict[str, Row]()
    for name, row in states.items() if type(states) is dict else ():
        state = row.get("state") if type(row) is dict else None
        if type(name) is str and type(state) is dict:
            version = widgets_raw.version(row.get("model_module_version"))
            found[name] = Row(name, state, version)
    paths = data.get("buffer_paths")
    for path, buffer in zip(paths if type(paths) is list else [], buffers, strict=False):
        match path:
            case [str(name), "state", *rest] if name in found:
                found[name].paths.append(rest)
                found[name].buffers.append(buffer)
    yield from found.values()
