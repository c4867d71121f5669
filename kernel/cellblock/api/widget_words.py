"""What widgets show when a cell has ended, in words.

The text of a widget's display says what the widget showed at first: of a progress bar, its
beginning. ``WidgetWords`` follows the messages that change widgets, so that ``Result.widgets`` can
say what they show in the end. ``SandboxFront`` has one for its session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from cellblock.host.output.gateway import VIEW, WIDGET
from cellblock.host.output.readable import text_of
from cellblock.render.text import encodable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cellblock.host.cell.transcript import Output

_NUMBER: Final = (int, float)
#: The keys of a widget's state that are remembered, with their types. A value of another type
#: becomes None: nothing else checks the state of widgets from modules that an operator has added
#: (``widget_modules``).
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
#: Characters of a text that are remembered, items of a list, and the size of an integer.
_MAX_TEXT: Final = 300
_MAX_ITEMS: Final = 50
_MAX_INT: Final = 1 << 64
#: Widgets of a session that are remembered.
_MAX_WIDGETS: Final = 1_000
#: Widgets, a container's children too, that are read for one display.
_MAX_READ: Final = 200
_REFERENCE: Final = "IPY_MODEL_"
_OF_LOOKS: Final = ("LayoutModel", "StyleModel")
#: Models that show their value as text, or as HTML.
_TEXTS: Final = frozenset({"LabelModel"})
_HTML: Final = frozenset({"HTMLModel", "HTMLMathModel"})


class WidgetWords:
    """The states of a session's widgets, as far as they can be put into words.

    Updates of an unknown widget are ignored. A fork, for example, doesn't know the widgets that its
    parent made.
    """

    def __init__(self) -> None:
        self._states: dict[str, dict[str, Any]] = {}
        #: The ids of widgets that changed since the last cell ended, and of those that were closed.
        self._changed = set[str]()
        self._closed = set[str]()

    def take(self, output: Output) -> None:
        """Take an output. Only messages of widgets change anything."""
        if not output.kind.startswith("comm_"):
            return
        name = output.content["comm_id"]
        data = output.content["data"]
        sent_state = data.get("state") if isinstance(data, dict) else None
        state = dict(_remembered(sent_state)) if isinstance(sent_state, dict) else {}
        if output.kind == "comm_close":
            if self._states.pop(name, None) is not None:
                self._closed.add(name)
        elif output.kind == "comm_open":
            model = state.get("_model_name") or ""
            if output.content.get("target_name") == WIDGET and not model.endswith(_OF_LOOKS):
                self._states[name] = state
                if len(self._states) > _MAX_WIDGETS:
                    del self._states[next(iter(self._states))]
        elif isinstance(sent_state, dict) and name in self._states:
            self._states[name].update(state)
            self._changed.add(name)

    def end_cell(self, outputs: Iterable[Output]) -> dict[str, str]:
        """Return what widgets show now, in words, by id. Called when a cell has ended.

        Only the widgets that ``outputs`` display are returned, and only if they or their children
        have changed since the cell before ended, other than by being made. A widget that was closed
        has "". Later changes belong to the next cell.
        """
        ids = filter(None, dict.fromkeys(map(_view_id, outputs)))
        words_by_name = {name: words for name in ids if (words := self._words(name)) is not None}
        self._changed.clear()
        self._closed.clear()
        return words_by_name

    def _words(self, name: str) -> str | None:
        """Return what a widget and its children show; None if none of them has changed."""
        if name in self._closed:
            return ""
        parts = list(self._parts(name, [_MAX_READ]))
        widget_names = {widget_name for widget_name, _ in parts}
        if not widget_names & self._changed:
            return None
        return " ".join(text for _, text in parts if text)

    def _parts(self, name: str, left: list[int]) -> Iterator[tuple[str, str]]:
        """Yield the ids and words of a widget and of its children, at most ``left[0]`` of them."""
        state = self._states.get(name)
        left[0] -= 1
        if state is None or left[0] < 0:
            return
        children = state.get("children")
        if children is None:
            yield name, _text_of_state(state)
            return
        yield name, ""
        for child in children:
            yield from self._parts(str(child).removeprefix(_REFERENCE), left)


def shown_at_the_end(
    data: Mapping[str, Any], widgets: Mapping[str, str]
) -> Mapping[str, Any] | None:
    """Return a bundle with a text that says what its widget shows now, or None if it was closed.

    ``widgets`` is ``Result.widgets``. Other bundles are returned as they are.
    """
    words = widgets.get(_id_in(data))
    if words is None:
        return data
    return {**data, "text/plain": words} if words else None


def _view_id(output: Output) -> str:
    """Return the id of the widget that an output displays, or ""."""
    data = output.content.get("data")
    return _id_in(data) if isinstance(data, dict) else ""


def _id_in(data: Mapping[str, Any]) -> str:
    view = data.get(VIEW)
    return str(view.get("model_id", "")) if isinstance(view, dict) else ""


def _remembered(state: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the keys and values of a state that are remembered, bounded."""
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
    if isinstance(value, int):  # a larger integer has no float, and may be too long for a text
        return value if abs(value) <= _MAX_INT else None
    return value if isinstance(value, float) else None


def _text_of_state(state: Mapping[str, Any]) -> str:
    """Return what a widget shows: a text, a progress ("3 of 5"), or else the widget's repr."""
    value = state.get("value")
    label = state.get("description")
    model = state.get("_model_name") or ""
    if model in _HTML or model in _TEXTS:
        text = str(value or "")
        readable = text_of(text) if model in _HTML else text
        return _in_a_line(" ".join(filter(None, [label, readable])))
    if model.endswith("ProgressModel") and isinstance(value, int | float):
        maximum = state.get("max")
        bar = f"{value:g} of {maximum:g}" if isinstance(maximum, int | float) else f"{value:g}"
        return _in_a_line(" ".join(filter(None, [label, bar])))
    fields = {name: state[name] for name in ("min", "max", "description") if state.get(name)}
    options = state.get("_options_labels")
    index = state.get("index")
    if isinstance(options, list) and isinstance(index, int) and 0 <= index < len(options):
        fields = {"value": options[index], **fields}
    elif value is not None:
        fields = {"value": value, **fields}
    arguments = ", ".join(f"{name}={field!r}" for name, field in fields.items())
    return f"{model.removesuffix('Model')}({arguments})"


def _in_a_line(text: str) -> str:
    """Return a text in one line with plain blanks; tqdm's figure spaces are as wide as a digit."""
    return " ".join(text.split())
