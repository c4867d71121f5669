"""The widgets that cells may show, and the kind of each of their keys.

From the traits that ipywidgets 8 syncs and the views of @jupyter-widgets/base 6, controls 5 and
output 6 that read them. A model that is not here is refused, a key that is not here is dropped;
module, name, version and view are written from here, whatever a cell says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cellblock.host.output import widget_kinds as k

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cellblock.host.output.widget_kinds import Scope

    Keys = Mapping[str, Callable[[Any, Scope], Any]]


BASE: Final = "@jupyter-widgets/base"
CONTROLS: Final = "@jupyter-widgets/controls"
OUTPUT: Final = "@jupyter-widgets/output"
VERSIONS: Final = {BASE: "2.0.0", CONTROLS: "2.0.0", OUTPUT: "1.0.0"}


@dataclass(frozen=True, slots=True)
class Model:
    """One widget's front-end half. Without keys, it is of an operator's module: all may pass."""

    module: str
    name: str
    view_module: str
    view: str | None
    keys: Keys

    def identity(self) -> dict[str, str | None]:
        """Return the keys by which a front end finds its classes."""
        return {
            "_model_module": self.module,
            "_model_module_version": VERSIONS[self.module],
            "_model_name": self.name,
            "_view_module": self.view_module,
            "_view_module_version": VERSIONS[self.view_module],
            "_view_name": self.view,
        }


_WIDGET: Final[Keys] = {"_view_count": k.number}
_DOM: Final[Keys] = {
    **_WIDGET,
    "_dom_classes": k.classes,
    "layout": k.layout,
    "tabbable": k.flag,
    "tooltip": k.text,
}
_DESCRIBED: Final[Keys] = {
    **_DOM,
    "description": k.label,
    "description_allow_html": k.markup,
    "style": k.style,
}
_CONTROL: Final[Keys] = {**_DESCRIBED, "disabled": k.flag}
_BOX: Final[Keys] = {**_DOM, "box_style": k.word, "children": k.children}
_BUTTON: Final[Keys] = {**_CONTROL, "button_style": k.word, "icon": k.icon}
_CHOICE: Final[Keys] = {**_CONTROL, "_options_labels": k.texts, "index": k.numbers}
_MEDIA: Final[Keys] = {**_DOM, "format": k.media_format, "value": k.media}
_PANES: Final[Keys] = {**_BOX, "selected_index": k.number, "titles": k.texts}
_PLAYED: Final[Keys] = {**_MEDIA, "autoplay": k.flag, "controls": k.flag, "loop": k.flag}
_RANGE: Final[Keys] = {
    **_CONTROL,
    "continuous_update": k.flag,
    "max": k.number,
    "min": k.number,
    "step": k.number,
    "value": k.number,
}
_PROGRESS: Final[Keys] = {**_RANGE, "bar_style": k.word, "orientation": k.word}
_SLIDER: Final[Keys] = {
    **_RANGE,
    "base": k.number,
    "behavior": k.word,
    "orientation": k.word,
    "readout": k.flag,
    "readout_format": k.number_format,
}
_RANGE_SLIDER: Final[Keys] = {**_SLIDER, "value": k.numbers}
_CHOICE_SLIDER: Final[Keys] = {
    **_CHOICE,
    "behavior": k.word,
    "continuous_update": k.flag,
    "orientation": k.word,
    "readout": k.flag,
}
_STRING: Final[Keys] = {**_CONTROL, "placeholder": k.text}
_TYPED: Final[Keys] = {**_STRING, "continuous_update": k.flag, "value": k.text}
_PICKER: Final[Keys] = {
    **_CONTROL,
    "max": k.moment,
    "min": k.moment,
    "step": k.moment,
    "value": k.moment,
}
_TAGS: Final[Keys] = {
    **_DESCRIBED,
    "allow_duplicates": k.flag,
    "allowed_tags": k.texts,
    "placeholder": k.text,
    "tag_style": k.word,
    "value": k.texts,
}
_NUMBER_TAGS: Final[Keys] = {
    **_TAGS,
    "allowed_tags": k.numbers,
    "format": k.number_format,
    "max": k.number,
    "min": k.number,
    "value": k.numbers,
}
_LINK: Final[Keys] = {**_WIDGET, "source": k.end, "target": k.end}
_STYLE: Final[Keys] = {**_WIDGET, "description_width": k.size}
_FONT: Final[Keys] = {
    **_STYLE,
    "background": k.size,
    "font_family": k.css,
    "font_size": k.size,
    "font_style": k.css,
    "font_variant": k.css,
    "font_weight": k.css,
    "text_color": k.css,
    "text_decoration": k.css,
}
_LAYOUT: Final[Keys] = {
    **_WIDGET,
    "align_content": k.css,
    "align_items": k.css,
    "align_self": k.css,
    "border_bottom": k.size,
    "border_left": k.size,
    "border_right": k.size,
    "border_top": k.size,
    "bottom": k.offset,
    "display": k.css,
    "flex": k.size,
    "flex_flow": k.css,
    "grid_area": k.css,
    "grid_auto_columns": k.size,
    "grid_auto_flow": k.css,
    "grid_auto_rows": k.size,
    "grid_column": k.css,
    "grid_gap": k.size,
    "grid_row": k.css,
    "grid_template_areas": k.css,
    "grid_template_columns": k.size,
    "grid_template_rows": k.size,
    "height": k.size,
    "justify_content": k.css,
    "justify_items": k.css,
    "left": k.offset,
    "margin": k.margin,
    "max_height": k.size,
    "max_width": k.size,
    "min_height": k.size,
    "min_width": k.size,
    "object_fit": k.css,
    "object_position": k.size,
    "order": k.css,
    "overflow": k.css,
    "padding": k.size,
    "right": k.offset,
    "top": k.offset,
    "visibility": k.css,
    "width": k.size,
}
_OUTPUT: Final[Keys] = {**_DOM, "msg_id": k.capture, "outputs": k.outputs}
_CONTROLLER: Final[Keys] = {
    **_DOM,
    "axes": k.axes,
    "buttons": k.buttons,
    "connected": k.flag,
    "index": k.number,
    "mapping": k.text,
    "name": k.text,
    "timestamp": k.number,
}
_UPLOAD: Final[Keys] = {
    **_BUTTON,
    "accept": k.text,
    "error": k.text,
    "multiple": k.flag,
    "value": k.files,
}
_PLAY: Final[Keys] = {
    **_RANGE,
    "interval": k.number,
    "playing": k.flag,
    "repeat": k.flag,
    "show_repeat": k.flag,
}

#: Stem of a control's model name to its view's and its keys.
_CONTROLS: Final[dict[str, tuple[str | None, Keys]]] = {
    "Accordion": ("Accordion", _PANES),
    "Audio": ("Audio", _PLAYED),
    "BoundedFloatText": ("FloatText", _RANGE),
    "BoundedIntText": ("IntText", _RANGE),
    "Box": ("Box", _BOX),
    "Button": ("Button", _BUTTON),
    "Checkbox": ("Checkbox", {**_CONTROL, "indent": k.flag, "value": k.flag}),
    "ColorPicker": ("ColorPicker", {**_CONTROL, "concise": k.flag, "value": k.color}),
    "ColorsInput": ("ColorsInput", {**_TAGS, "allowed_tags": k.colors, "value": k.colors}),
    "Combobox": ("Combobox", {**_TYPED, "ensure_option": k.flag, "options": k.texts}),
    "Controller": ("Controller", _CONTROLLER),
    "ControllerAxis": ("ControllerAxis", {**_DOM, "value": k.number}),
    "ControllerButton": ("ControllerButton", {**_DOM, "pressed": k.flag, "value": k.number}),
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
    "HTML": ("HTML", {**_STRING, "value": k.html}),
    "HTMLMath": ("HTMLMath", {**_STRING, "value": k.html}),
    "Image": ("Image", {**_MEDIA, "height": k.pixels, "width": k.pixels}),
    "IntProgress": ("Progress", _PROGRESS),
    "IntRangeSlider": ("IntRangeSlider", _RANGE_SLIDER),
    "IntSlider": ("IntSlider", _SLIDER),
    "IntText": ("IntText", _RANGE),
    "IntsInput": ("IntsInput", _NUMBER_TAGS),
    "Label": ("Label", {**_STRING, "value": k.formula}),
    "Link": (None, _LINK),
    "NaiveDatetime": ("Datetime", _PICKER),
    "Password": ("Password", _TYPED),
    "Play": ("Play", _PLAY),
    "RadioButtons": ("RadioButtons", {**_CHOICE, "orientation": k.word}),
    "Select": ("Select", {**_CHOICE, "rows": k.number}),
    "SelectMultiple": ("SelectMultiple", {**_CHOICE, "rows": k.number}),
    "SelectionRangeSlider": ("SelectionRangeSlider", _CHOICE_SLIDER),
    "SelectionSlider": ("SelectionSlider", _CHOICE_SLIDER),
    "Stack": ("Stack", _PANES),
    "Tab": ("Tab", _PANES),
    "TagsInput": ("TagsInput", _TAGS),
    "Text": ("Text", _TYPED),
    "Textarea": ("Textarea", {**_TYPED, "rows": k.number}),
    "Time": ("Time", _PICKER),
    "ToggleButton": ("ToggleButton", {**_BUTTON, "value": k.flag}),
    "ToggleButtons": (
        "ToggleButtons",
        {**_CHOICE, "button_style": k.word, "icons": k.icons, "tooltips": k.texts},
    ),
    "Valid": ("Valid", {**_CONTROL, "readout": k.text, "value": k.flag}),
    "Video": ("Video", {**_PLAYED, "height": k.pixels, "width": k.pixels}),
    "VBox": ("VBox", _BOX),
}
_STYLES: Final[dict[str, Keys]] = {
    "Button": {**_FONT, "button_color": k.css},
    "Checkbox": _FONT,
    "Description": _STYLE,
    "HTML": _FONT,
    "HTMLMath": _FONT,
    "Label": _FONT,
    "Progress": {**_STYLE, "bar_color": k.css},
    "Slider": {**_STYLE, "handle_color": k.css},
    "Text": _FONT,
    "ToggleButton": _FONT,
    "ToggleButtons": {**_STYLE, "button_width": k.size, "font_weight": k.css},
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
