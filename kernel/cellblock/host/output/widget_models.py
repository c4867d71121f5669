"""The allowlist of widgets (``MODELS``): their keys, and the kind of each key's value.

It follows the traits that ipywidgets 8 syncs, and the views of @jupyter-widgets/base 6, controls 5
and output 6 that read them. A model that is not in the table is refused, a key that is not in its
row is dropped. Module, name, version and view are always taken from the table, not from the cell.

A *kind* is a function: it takes a value and returns what may pass, or raises ``RefusedError``.
Kinds accept exact types only. A view that can't read a value shows an error, and the front end's
error box renders as HTML what that quotes: a number format, an icon's name, a tag.

The file has the kinds first, in the order of what they let pass, then the models.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cellblock.host.output import gateway, markup, tex
from cellblock.host.output.markup import words
from cellblock.host.output.text import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Kind = Callable[[Any, "Scope"], Any]
    Keys = Mapping[str, Kind]


@dataclass(frozen=True, slots=True)
class Scope:
    """What some kinds need beside the value."""

    #: Returns the model of an open widget by its id, or None.
    model_of: Callable[[str], Model | None]
    #: Cleans a mime bundle, as for an output.
    show: Callable[[Any], dict[str, Any]]
    #: Id of the request under which the message is shown.
    parent: str


# --- numbers, texts and words -----------------------------------------------------------------

#: Items of a list.
_MOST_ITEMS: Final = 100_000
_WORD: Final = re.compile(r"[A-Za-z0-9_-]{0,40}")
#: d3-format's grammar, without fills that could be markup, and with widths that fit on a line.
_NUMBER_FORMAT: Final = re.compile(
    r"(?:[\w .*-]?[<>=^])?[+( -]?[$#]?0?\d{0,2},?(?:\.\d{1,2})?~?[A-Za-z%]?", re.ASCII
)
_MOMENT: Final = re.compile(r"[\d:.+TZ-]{0,40}", re.ASCII)
_PIXELS: Final = re.compile(r"(?:\d{1,5}(?:\.\d{1,3})?(?:px|%|em|rem|vw|vh)?)?", re.ASCII)
_MEDIA_FORMAT: Final = re.compile(r"[a-z0-9+.-]{0,40}", re.ASCII)
#: The name of an icon, but of none that is drawn beside or upon its place.
_GLYPH: Final = r"(?!(?:fa-)?(?:li|stack)\b)[a-z0-9]+(?:-[a-z0-9]+)*"
#: Icons of a button, whose view puts ``fa-`` before each word.
_ICON: Final = re.compile(rf"(?:{_GLYPH}(?: {_GLYPH}){{0,3}})?", re.ASCII)
#: Icons of one of several buttons. Their view puts ``fa-`` before the first word only.
_CLASS_ICON: Final = re.compile(rf"(?:{_GLYPH}(?: (?=fa-){_GLYPH}){{0,3}})?", re.ASCII)
#: The keys of an uploaded file.
_FILE_KEYS: Final = ("name", "type", "size", "last_modified", "content")


def flag(value: Any, _: Scope) -> bool | None:
    """Return true, false or null."""
    if value is None or type(value) is bool:
        return value
    raise RefusedError("not true or false")


def number(value: Any, _: Scope) -> float | None:
    """Return a finite number or null."""
    if value is None or type(value) is int or type(value) is bool:
        return value
    if type(value) is float:
        return value if math.isfinite(value) else None
    raise RefusedError("not a number")


def numbers(value: Any, scope: Scope) -> Any:
    """Return a number, or a list of them."""
    if type(value) is list:
        return [number(item, scope) for item in _items(value)]
    return number(value, scope)


def text(value: Any, _: Scope) -> str | None:
    """Return a text, for keys that are only ever shown as text."""
    if value is None or type(value) is str:
        return value
    raise RefusedError("not text")


def _items(value: Any) -> Any:
    """Return a list of at most ``_MOST_ITEMS`` items. Raises ``RefusedError`` for other values."""
    if type(value) is not list or len(value) > _MOST_ITEMS:
        raise RefusedError("not a list")
    return value


def _list_of(kind: Kind) -> Kind:
    """Return the kind of lists whose items are of this kind; null becomes an empty text."""

    def items(value: Any, scope: Scope) -> list[Any]:
        return [kind(item, scope) or "" for item in _items(value)]

    return items


texts = _list_of(text)


def _matching(pattern: re.Pattern[str], noun: str) -> Kind:
    """Return the kind of texts that match a pattern; ``noun`` names them in a refusal."""

    def kind(value: Any, _: Scope) -> str | None:
        if value is None or (type(value) is str and pattern.fullmatch(value)):
            return value
        raise RefusedError(f"not {noun}")

    return kind


word = _matching(_WORD, "a known word")
number_format = _matching(_NUMBER_FORMAT, "a number format")
pixels = _matching(_PIXELS, "a length")
icon = _matching(_ICON, "an icon's name")
#: The icons of a group of buttons, one text for each button.
icons = _list_of(_matching(_CLASS_ICON, "an icon's name"))
#: The format that a widget names for its bytes. ``widgets`` judges it together with the bytes.
media_format = _matching(_MEDIA_FORMAT, "a format")


def moment(value: Any, scope: Scope) -> Any:
    """Return a date, a time or both, as the front end's pickers write them."""
    if type(value) is dict:
        part_names = [key for key in value if type(key) is str and _WORD.fullmatch(key)]
        return {key: number(value[key], scope) for key in part_names[:10]}
    if type(value) is str and (_MOMENT.fullmatch(value) or value == "any"):
        return value
    return number(value, scope)


def files(value: Any, _: Scope) -> list[dict[str, Any]]:
    """Return the uploaded files that a cell still has; the front end shows how many there are."""
    rows = [row for row in _items(value) if type(row) is dict]
    rows_kept = [{key: row[key] for key in _FILE_KEYS if key in row} for row in rows]
    if all(
        isinstance(part, bytes | str | int | float | None)
        for row in rows_kept
        for part in row.values()
    ):
        return rows_kept
    raise RefusedError("not a file")


# --- CSS ----------------------------------------------------------------------------------------
#
# One value of a widget's layout or style. The front end sets it as a named property, so it can't
# spell a second one. A value that passes names no resource (no ``url()``, no function that is not
# listed, no escape) and moves no box over others: no negative length, no offset.

#: Characters of one value.
_LONGEST_CSS: Final = 500
#: Functions that values may call.
_FUNCTIONS: Final = words(
    "calc clamp fit-content max min minmax repeat",
    "color-mix hsl hsla hwb lab lch oklab oklch rgb rgba",
    "linear-gradient radial-gradient",
    "var",
)
_CHARACTERS: Final = re.compile(
    r"""(?:[\w#%.+*/,()\s-]|'[\w ,.+-]*+'|"[\w ,.+\s-]*+")*+""", re.ASCII
)
#: Rows of names in quotes, as ``GridspecLayout`` writes them.
_AREAS: Final = re.compile(r"""(?:\s*+"[\w .-]*+")++\s*+""", re.ASCII)
_MOST_AREAS: Final = 100_000
_CALL: Final = re.compile(r"(?<![\w-])([\w-]*+)\(", re.ASCII)
_COLOR: Final = re.compile(r"#?[\w(),.%/ -]{0,100}", re.ASCII)
_NO_OFFSET: Final = re.compile(r"(?:0(?:px|%|em)?|auto|inherit|initial|unset|revert)?")
_CLASS: Final = re.compile(r"[A-Za-z_][\w-]{0,99}", re.ASCII)
#: The class that ``interact`` gives its box. The front end's style for it only sets a margin.
_OWN_CLASSES: Final = frozenset(("widget-interact",))


def css(value: Any, _: Scope) -> str | None:
    """Return the value of a property, or None."""
    if value is None:
        return None
    if isinstance(value, str) and len(value) > _LONGEST_CSS:
        raise RefusedError(f"more than {_LONGEST_CSS} characters")
    if not isinstance(value, str) or not _CHARACTERS.fullmatch(value):
        raise RefusedError("not a plain CSS value")
    for call in _CALL.finditer(value):
        if call[1] and call[1].lower() not in _FUNCTIONS:
            raise RefusedError(f"{call[1][:40]}() is not allowed")
    return str(value)


def areas(value: Any, scope: Scope) -> str | None:
    """Return the areas of a grid, row by row; longer than other values, as a grid may be large."""
    if isinstance(value, str) and len(value) > _LONGEST_CSS and _AREAS.fullmatch(value):
        if len(value) > _MOST_AREAS:
            raise RefusedError(f"more than {_MOST_AREAS:,} characters")
        return value
    return css(value, scope)


def size(value: Any, scope: Scope) -> str | None:
    """Return a length, border, track list or colour, unless it has a negative number."""
    length = css(value, scope)
    if length is not None and markup.is_negative(length) and "(" not in length:
        raise RefusedError("negative")
    return length


def margin(value: Any, scope: Scope) -> str | None:
    """Return a margin that is not negative.

    Computed margins (``calc``) are refused, since their result could be negative.
    """
    length = size(value, scope)
    if length is not None and "(" in length:
        raise RefusedError("computed margins are not allowed")
    return length


def offset(value: Any, scope: Scope) -> str | None:
    """Return an offset (top, left and others) if it is 0 or automatic, so that it moves nothing."""
    length = css(value, scope)
    if length is not None and not _NO_OFFSET.fullmatch(length.strip().lower()):
        raise RefusedError("moves the widget over its neighbours")
    return length


def color(value: Any, scope: Scope) -> str | None:
    """Return a colour."""
    cleaned = css(value, scope)
    if cleaned is not None and not _COLOR.fullmatch(cleaned):
        raise RefusedError("not a colour")
    return cleaned


colors = _list_of(color)


def classes(value: Any, _: Scope) -> list[str]:
    """Return the class names for which the front end has no style of its own."""
    names = [name for name in _items(value) if type(name) is str and _CLASS.fullmatch(name)]
    return [name for name in names if name in _OWN_CLASSES or markup.is_own_class(name)]


# --- markup, media and outputs ----------------------------------------------------------------


def html(value: Any, scope: Scope) -> str | None:
    """Return sanitised HTML; if all of it is refused, a note instead."""
    cleaned = text(value, scope)
    if not cleaned:
        return cleaned
    try:
        return gateway.sanitise("text/html", cleaned)
    except RefusedError as refused:
        return f"<small>[cellblock left out {refused}]</small>"


def formula(value: Any, scope: Scope) -> str | None:
    """Return text that the front end searches for formulas; if it has too much markup, a note."""
    cleaned = text(value, scope)
    if cleaned and gateway.marks(cleaned) > gateway.MAX_MARKS:
        return "[cellblock left out too much markup]"
    return tex.clean_formulas(cleaned) if cleaned else cleaned


def label(value: Any, scope: Scope) -> str | None:
    """Return a description. ``widgets`` cleans it, which knows whether it is HTML."""
    return text(value, scope)


def label_is_html(value: Any, scope: Scope) -> bool | None:
    """Return whether the description is HTML. A kind of its own, since ``widgets`` acts on it."""
    return flag(value, scope)


def media(value: Any, _: Scope) -> bytes:
    """Return the bytes of an image, sound or film. ``widgets`` judges them by their format."""
    if isinstance(value, bytes):
        return value
    raise RefusedError("not bytes")


_MOST_OUTPUTS: Final = 1_000


def outputs(value: Any, scope: Scope) -> list[dict[str, Any]]:
    """Return the outputs that an Output widget shows, cleaned as outputs of a cell; the last."""
    if type(value) is not list:
        raise RefusedError("not a list")
    cleaned_outputs = (
        _output(item, scope) for item in value[-_MOST_OUTPUTS:] if type(item) is dict
    )
    return list(filter(None, cleaned_outputs))


def _output(item: dict[Any, Any], scope: Scope) -> dict[str, Any]:
    """Return one output in nbformat's form, cleaned; empty if its type is unknown."""
    kind = item.get("output_type")
    if kind == "stream":
        name = "stderr" if item.get("name") == "stderr" else "stdout"
        text = item.get("text")
        if type(text) is list:  # nbformat allows a list of lines
            text = "".join(line for line in text if type(line) is str)
        return {"output_type": kind, "name": name, "text": gateway.clean_stream(text)}
    if kind == "error":
        error_fields = (item.get("ename"), item.get("evalue"), item.get("traceback"))
        return {"output_type": kind, **gateway.clean_error(*error_fields)}
    if kind not in {"display_data", "execute_result"}:
        return {}
    bundle: dict[str, Any] = {
        "output_type": kind,
        "data": scope.show(item.get("data")),
        "metadata": gateway.clean_metadata(item.get("metadata")),
    }
    if kind == "execute_result":
        count = item.get("execution_count")
        bundle["execution_count"] = count if type(count) is int else None
    return bundle


# --- other widgets ----------------------------------------------------------------------------

REFERENCE: Final = "IPY_MODEL_"


def capture(value: Any, scope: Scope) -> str:
    """Return the id of the running request, whose outputs a widget captures; empty for no capture.

    The id that the cell names does not matter: another request's outputs must not be captured.
    """
    return scope.parent if value else ""


def _referenced_name(value: Any) -> str:
    """Return the id that a reference names; empty if the value is no reference."""
    is_reference = type(value) is str and value.startswith(REFERENCE)
    return value.removeprefix(REFERENCE) if is_reference else ""


def _refers(value: Any, scope: Scope, suffix: str = "") -> bool:
    """Return whether a value refers to an open widget whose model's name has this suffix."""
    model = scope.model_of(_referenced_name(value))
    return model is not None and model.name.endswith(suffix)


def _reference_to(suffix: str) -> Kind:
    """Return the kind of references to one widget, by the suffix of its model's name."""

    def reference(value: Any, scope: Scope) -> str | None:
        if value is not None and not _refers(value, scope, suffix):
            raise RefusedError("refers to no such widget")
        return None if value is None else str(value)

    return reference


def _references_to(suffix: str = "") -> Kind:
    """Return the kind of lists of references. Those to no open widget are dropped.

    Such a widget was refused when it was opened, and its user was told then.
    """

    def references(value: Any, scope: Scope) -> list[str]:
        return [item for item in _items(value) if _refers(item, scope, suffix)]

    return references


layout = _reference_to("LayoutModel")
style = _reference_to("StyleModel")
children = _references_to()
#: The buttons and axes of a game controller, whose view writes to them without a cell.
buttons = _references_to("ControllerButtonModel")
axes = _references_to("ControllerAxisModel")


def link_end(value: Any, scope: Scope) -> tuple[str, str]:
    """Return one end of a link: a widget's id and a key. ``widgets`` judges both ends together."""
    match value:
        case [reference, key] if type(value) is list:
            if type(key) is str and _refers(reference, scope):
                return _referenced_name(reference), key
            raise RefusedError("refers to no such widget")
    raise RefusedError("not a widget and a key")


# --- models, and the kinds of their keys --------------------------------------------------------

BASE: Final = "@jupyter-widgets/base"
CONTROLS: Final = "@jupyter-widgets/controls"
OUTPUT: Final = "@jupyter-widgets/output"
VERSIONS: Final = {BASE: "2.0.0", CONTROLS: "2.0.0", OUTPUT: "1.0.0"}


@dataclass(frozen=True, slots=True)
class Model:
    """The front end's half of one widget.

    A model without keys is of a module that the operator added to the policy: its state is not
    judged.
    """

    module: str
    name: str
    view_module: str
    view: str | None
    keys: Keys

    def identity(self) -> dict[str, str | None]:
        """Return the keys by which a front end finds the model's and the view's class."""
        return {
            "_model_module": self.module,
            "_model_module_version": VERSIONS[self.module],
            "_model_name": self.name,
            "_view_module": self.view_module,
            "_view_module_version": VERSIONS[self.view_module],
            "_view_name": self.view,
        }


def _keys(base: Keys, *kinds: tuple[Kind, str]) -> Keys:
    """Return the keys of ``base`` and more, given as kinds with the names of their keys."""
    return {**base, **{name: kind for kind, names in kinds for name in names.split()}}


_WIDGET: Final = _keys({}, (number, "_view_count"))
_DOM: Final = _keys(
    _WIDGET,
    (classes, "_dom_classes"),
    (layout, "layout"),
    (flag, "tabbable"),
    (text, "tooltip"),
)
_DESCRIBED: Final = _keys(
    _DOM,
    (label, "description"),
    (label_is_html, "description_allow_html"),
    (style, "style"),
)
_CONTROL: Final = _keys(_DESCRIBED, (flag, "disabled"))
_BOX: Final = _keys(_DOM, (word, "box_style"), (children, "children"))
_BUTTON: Final = _keys(_CONTROL, (word, "button_style"), (icon, "icon"))
_CHOICE: Final = _keys(_CONTROL, (texts, "_options_labels"), (numbers, "index"))
_MEDIA: Final = _keys(_DOM, (media_format, "format"), (media, "value"))
_PANES: Final = _keys(_BOX, (number, "selected_index"), (texts, "titles"))
_PLAYED: Final = _keys(_MEDIA, (flag, "autoplay controls loop"))
_RANGE: Final = _keys(_CONTROL, (flag, "continuous_update"), (number, "max min step value"))
_PROGRESS: Final = _keys(_RANGE, (word, "bar_style orientation"))
_SLIDER: Final = _keys(
    _RANGE,
    (number, "base"),
    (word, "behavior orientation"),
    (flag, "readout"),
    (number_format, "readout_format"),
)
_RANGE_SLIDER: Final = _keys(_SLIDER, (numbers, "value"))
_CHOICE_SLIDER: Final = _keys(
    _CHOICE,
    (word, "behavior orientation"),
    (flag, "continuous_update readout"),
)
_STRING: Final = _keys(_CONTROL, (text, "placeholder"))
_TYPED: Final = _keys(_STRING, (flag, "continuous_update"), (text, "value"))
_PICKER: Final = _keys(_CONTROL, (moment, "max min step value"))
_TAGS: Final = _keys(
    _DESCRIBED,
    (flag, "allow_duplicates"),
    (texts, "allowed_tags value"),
    (text, "placeholder"),
    (word, "tag_style"),
)
_NUMBER_TAGS: Final = _keys(
    _TAGS,
    (numbers, "allowed_tags value"),
    (number_format, "format"),
    (number, "max min"),
)
_LINK: Final = _keys(_WIDGET, (link_end, "source target"))
_STYLE: Final = _keys(_WIDGET, (size, "description_width"))
_FONT: Final = _keys(
    _STYLE,
    (size, "background font_size"),
    (css, "font_family font_style font_variant font_weight text_color text_decoration"),
)
_LAYOUT: Final = _keys(
    _WIDGET,
    (css, "align_content align_items align_self display flex_flow grid_area grid_auto_flow"),
    (css, "grid_column grid_row justify_content justify_items object_fit"),
    (css, "order overflow visibility"),
    (areas, "grid_template_areas"),
    (size, "border_bottom border_left border_right border_top flex grid_auto_columns"),
    (size, "grid_auto_rows grid_gap grid_template_columns grid_template_rows height max_height"),
    (size, "max_width min_height min_width object_position padding width"),
    (offset, "bottom left right top"),
    (margin, "margin"),
)
_OUTPUT: Final = _keys(_DOM, (capture, "msg_id"), (outputs, "outputs"))
_CONTROLLER: Final = _keys(
    _DOM,
    (axes, "axes"),
    (buttons, "buttons"),
    (flag, "connected"),
    (number, "index timestamp"),
    (text, "mapping name"),
)
_UPLOAD: Final = _keys(_BUTTON, (text, "accept error"), (flag, "multiple"), (files, "value"))
_PLAY: Final = _keys(_RANGE, (number, "interval"), (flag, "playing repeat show_repeat"))

#: The controls, by the stem of the model's name: the stem of the view's name, and the keys.
_CONTROLS: Final[dict[str, tuple[str | None, Keys]]] = {
    "Accordion": ("Accordion", _PANES),
    "Audio": ("Audio", _PLAYED),
    "BoundedFloatText": ("FloatText", _RANGE),
    "BoundedIntText": ("IntText", _RANGE),
    "Box": ("Box", _BOX),
    "Button": ("Button", _BUTTON),
    "Checkbox": ("Checkbox", _keys(_CONTROL, (flag, "indent value"))),
    "ColorPicker": ("ColorPicker", _keys(_CONTROL, (flag, "concise"), (color, "value"))),
    "ColorsInput": ("ColorsInput", _keys(_TAGS, (colors, "allowed_tags value"))),
    "Combobox": ("Combobox", _keys(_TYPED, (flag, "ensure_option"), (texts, "options"))),
    "Controller": ("Controller", _CONTROLLER),
    "ControllerAxis": ("ControllerAxis", _keys(_DOM, (number, "value"))),
    "ControllerButton": ("ControllerButton", _keys(_DOM, (flag, "pressed"), (number, "value"))),
    "DatePicker": ("DatePicker", _PICKER),
    "Datetime": ("Datetime", _PICKER),
    "DirectionalLink": (None, _LINK),
    "Dropdown": ("Dropdown", _CHOICE),
    "FileUpload": ("FileUpload", _UPLOAD),
    "FloatLogSlider": ("FloatLogSlider", _SLIDER),
    "FloatProgress": ("Progress", _PROGRESS),
    "FloatRangeSlider": ("FloatRangeSlider", _RANGE_SLIDER),
    "FloatSlider": ("FloatSlider", _SLIDER),
    "FloatText": ("FloatText", _RANGE),
    "FloatsInput": ("FloatsInput", _NUMBER_TAGS),
    "GridBox": ("GridBox", _BOX),
    "HBox": ("HBox", _BOX),
    "HTML": ("HTML", _keys(_STRING, (html, "value"))),
    "HTMLMath": ("HTMLMath", _keys(_STRING, (html, "value"))),
    "Image": ("Image", _keys(_MEDIA, (pixels, "height width"))),
    "IntProgress": ("Progress", _PROGRESS),
    "IntRangeSlider": ("IntRangeSlider", _RANGE_SLIDER),
    "IntSlider": ("IntSlider", _SLIDER),
    "IntText": ("IntText", _RANGE),
    "IntsInput": ("IntsInput", _NUMBER_TAGS),
    "Label": ("Label", _keys(_STRING, (formula, "value"))),
    "Link": (None, _LINK),
    "NaiveDatetime": ("Datetime", _PICKER),
    "Password": ("Password", _TYPED),
    "Play": ("Play", _PLAY),
    "RadioButtons": ("RadioButtons", _keys(_CHOICE, (word, "orientation"))),
    "Select": ("Select", _keys(_CHOICE, (number, "rows"))),
    "SelectMultiple": ("SelectMultiple", _keys(_CHOICE, (number, "rows"))),
    "SelectionRangeSlider": ("SelectionRangeSlider", _CHOICE_SLIDER),
    "SelectionSlider": ("SelectionSlider", _CHOICE_SLIDER),
    "Stack": ("Stack", _PANES),
    "Tab": ("Tab", _PANES),
    "TagsInput": ("TagsInput", _TAGS),
    "Text": ("Text", _TYPED),
    "Textarea": ("Textarea", _keys(_TYPED, (number, "rows"))),
    "Time": ("Time", _PICKER),
    "ToggleButton": ("ToggleButton", _keys(_BUTTON, (flag, "value"))),
    "ToggleButtons": (
        "ToggleButtons",
        _keys(_CHOICE, (word, "button_style"), (icons, "icons"), (texts, "tooltips")),
    ),
    "Valid": ("Valid", _keys(_CONTROL, (text, "readout"), (flag, "value"))),
    "Video": ("Video", _keys(_PLAYED, (pixels, "height width"))),
    "VBox": ("VBox", _BOX),
}
#: The styles of controls, by the stem of the model's name.
_STYLES: Final[dict[str, Keys]] = {
    "Button": _keys(_FONT, (css, "button_color")),
    "Checkbox": _FONT,
    "Description": _STYLE,
    "HTML": _FONT,
    "HTMLMath": _FONT,
    "Label": _FONT,
    "Progress": _keys(_STYLE, (css, "bar_color")),
    "Slider": _keys(_STYLE, (css, "handle_color")),
    "Text": _FONT,
    "ToggleButton": _FONT,
    "ToggleButtons": _keys(_STYLE, (size, "button_width"), (css, "font_weight")),
}


def _models() -> dict[tuple[str, str], Model]:
    rows = [
        Model(BASE, "LayoutModel", BASE, "LayoutView", _LAYOUT),
        Model(OUTPUT, "OutputModel", OUTPUT, "OutputView", _OUTPUT),
    ]
    for stem, (view, keys) in _CONTROLS.items():
        rows.append(Model(CONTROLS, f"{stem}Model", CONTROLS, view and f"{view}View", keys))
    for stem, keys in _STYLES.items():
        rows.append(Model(CONTROLS, f"{stem}StyleModel", BASE, "StyleView", keys))
    return {(row.module, row.name): row for row in rows}


MODELS: Final = _models()
