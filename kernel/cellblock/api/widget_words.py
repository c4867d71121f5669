"""What widgets show in the end, in words: a display's own text says what they showed at first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cellblock.host.output.gateway import VIEW, WIDGET
from cellblock.host.output.readable import text_of
from cellblock.render.text import encodable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cellblock.host.cell.transcript import Output

_NUMBER: Final = (int, float)
#: What is remembered of a widget's state: values of these types, anything else is None. Nothing
#: else checks the state of a widget of a module that an operator has added (``widget_modules``).
_KEYS: Final[Mapping[str, tuple[type, ...]]] = {
    "_model_name": (str,),
    "_options_labels": (list,),
    "children": (list,),
    "description": (str,),
    "index": (int,),
    "max": _NUMBER,
    "min": _NUMBER,
    "value": (str, list, *_NUMBER),
}
#: And how much: of a text its characters, of a list its items, of an integer its size.
_MAX_TEXT: Final = 300
_MAX_ITEMS: Final = 50
_MAX_INT: Final = 1 << 64
#: Widgets that are remembered, and those that are read for one display.
_MAX_WIDGETS: Final = 1_000
_MAX_READ: Final = 200
_REFERENCE: Final = "IPY_MODEL_"
_OF_LOOKS: Final = ("LayoutModel", "StyleModel")
#: Models whose value is what they show.
_TEXTS: Final = frozenset({"LabelModel"})
_HTML: Final = frozenset({"HTMLModel", "HTMLMathModel"})


class WidgetWords:
    """The widgets of a session, as far as their states can be said; from the messages that passed.

    An update of a widget that is not known here, as of one made in a session that this one is a
    fork of, says nothing.
    """

    def __init__(self) -> None:
        self._states: dict[str, dict[str, Any]] = {}
        #: Widgets that changed since the last cell ended, and those that were closed.
        self._changed, self._closed = set[str](), set[str]()

    def take(self, output: Output) -> None:
        """Take an output; what is no message of a widget's changes nothing."""
        if not output.kind.startswith("comm_"):
            return
        name, data = output.content["comm_id"], output.content["data"]
        sent = data.get("state") if isinstance(data, dict) else None
        state = dict(_kept(sent)) if isinstance(sent, dict) else {}
        if output.kind == "comm_close":
            if self._states.pop(name, None) is not None:
                self._closed.add(name)
        elif output.kind == "comm_open":
            model = state.get("_model_name") or ""
            if output.content.get("target_name") == WIDGET and not model.endswith(_OF_LOOKS):
                self._states[name] = state
                if len(self._states) > _MAX_WIDGETS:
                    del self._states[next(iter(self._states))]
        elif isinstance(sent, dict) and name in self._states:
            self._states[name].update(state)
            self._changed.add(name)

    def end_cell(self, outputs: Iterable[Output]) -> dict[str, str]:
        """Return what each widget shows that a cell displayed and that has changed since, by id.

        Nothing is shown of one that was closed. What changes from now on is of the next cell.
        """
        ids = filter(None, dict.fromkeys(map(_view_id, outputs)))
        found = {name: words for name in ids if (words := self._words(name)) is not None}
        self._changed.clear()
        self._closed.clear()
        return found

    def _words(self, name: str) -> str | None:
        if name in self._closed:
            return ""
        parts = list(self._parts(name, [_MAX_READ]))
        seen = {part for part, _ in parts}
        if not seen & self._changed:
            return None
        return " ".join(text for _, text in parts if text)

    def _parts(self, name: str, left: list[int]) -> Iterator[tuple[str, str]]:
        """Yield a widget, and those in it, each with its own words; ``left`` of them at most."""
        state = self._states.get(name)
        left[0] -= 1
        if state is None or left[0] < 0:
            return
        children = state.get("children")
        if children is None:
            yield name, _said(state)
            return
        yield name, ""
        for child in children:
            yield from self._parts(str(child).removeprefix(_REFERENCE), left)


def shown_at_the_end(
    data: Mapping[str, Any], widgets: Mapping[str, str]
) -> Mapping[str, Any] | None:
    """Return a bundle whose text says what its widget shows now; None for one that is gone."""
    words = widgets.get(_id_in(data))
    if words is None:
        return data
    return {**data, "text/plain": words} if words else None


def _view_id(output: Output) -> str:
    data = output.content.get("data")
    return _id_in(data) if isinstance(data, dict) else ""


def _id_in(data: Mapping[str, Any]) -> str:
    view = data.get(VIEW)
    return str(view.get("model_id", "")) if isinstance(view, dict) else ""


def _kept(state: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, types in _KEYS.items():
        if key not in state:
            continue
        value = state[key]
        if not isinstance(value, types):
            yield key, None
        elif isinstance(value, list):
            yield key, list(map(_short, value[:_MAX_ITEMS]))
        else:
            yield key, _short(value)


def _short(value: Any) -> str | float | None:
    if isinstance(value, str):
        return encodable(value[:_MAX_TEXT])
    if isinstance(value, int):  # a larger one has no float, and may have no text
        return value if abs(value) <= _MAX_INT else None
    return value if isinstance(value, float) else None


def _said(state: Mapping[str, Any]) -> str:
    """Return what a widget shows, as IPython writes an object unless it is a text or a bar."""
    value, label = state.get("value"), state.get("description")
    model = state.get("_model_name") or ""
    if model in _HTML or model in _TEXTS:
        text = str(value or "")
        shown = text_of(text) if model in _HTML else text
        return _in_a_line(" ".join(filter(None, [label, shown])))
    if model.endswith("ProgressModel") and isinstance(value, int | float):
        most = state.get("max")
        bar = f"{value:g} of {most:g}" if isinstance(most, int | float) else f"{value:g}"
        return _in_a_line(" ".join(filter(None, [label, bar])))
    fields = {name: state[name] for name in ("min", "max", "description") if state.get(name)}
    options, index = state.get("_options_labels"), state.get("index")
    if isinstance(options, list) and isinstance(index, int) and 0 <= index < len(options):
        fields = {"value": options[index], **fields}
    elif value is not None:
        fields = {"value": value, **fields}
    said = ", ".join(f"{name}={one!r}" for name, one in fields.items())
    return f"{model.removesuffix('Model')}({said})"


def _in_a_line(text: str) -> str:
    """Return a text with plain blanks: tqdm's are as wide as a digit."""
    return " ".join(text.split())
