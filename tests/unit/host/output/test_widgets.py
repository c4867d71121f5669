"""Comms and widgets: what is admitted, what of a state passes, and what has to be seen together."""

import json

import pytest

from cellblock.host.output import gateway, widget_models, widgets
from cellblock.host.output.text import RefusedError
from cellblock.host.output.widget_models import BASE, CONTROLS, MODELS, OUTPUT
from cellblock.host.output.widgets import Comms, Passed, Refused
from cellblock.wire import messages

MODULES = (BASE, CONTROLS, OUTPUT)
PNG = b"\x89PNG\r\n\x1a\n"


def opening(name, model, module=CONTROLS, **state):
    """Return the content of what opens a widget's comm."""
    state = {"_model_module": module, "_model_name": model, **state}
    return {"comm_id": name, "target_name": "jupyter.widget", "data": {"state": state}}


class Guest:
    """Says things and keeps what passed, as a front end would have it."""

    def __init__(self, **options):
        self.comms = Comms(**({"modules": MODULES} | options))
        self.serial = 0

    def tell(self, kind, content, buffers=(), parent="p1"):
        message = messages.CommOut(kind=kind, content=content, buffers=list(buffers))
        passed = self.comms.clean(message, parent)
        if isinstance(passed, Passed):
            self.comms.commit(passed)
            json.dumps(passed.content())
        return passed

    def open(self, stem, module=CONTROLS, *, buffers=(), paths=(), **state):
        self.serial += 1
        name = f"c{self.serial}"
        content = opening(name, f"{stem}Model", module, **state)
        content["data"]["buffer_paths"] = list(paths)
        return name, self.tell("comm_open", content, buffers)

    def update(self, name, *, buffers=(), paths=(), method="update", **state):
        data = {"method": method, "state": state, "buffer_paths": list(paths)}
        return self.tell("comm_msg", {"comm_id": name, "data": data}, buffers)


@pytest.fixture
def guest():
    return Guest()


def left(passed):
    return [key for key, _ in passed.left]


# --- who is admitted --------------------------------------------------------------------------


#: Keys that no widget has.
OTHERS = {"_esm": "x", "__proto__": {"a": 1}, "comm_live": False}


def test_a_widget_has_its_classes_and_keys_from_the_table_whatever_it_says(guest):
    name, passed = guest.open(
        "Text", _model_module_version="*", _view_module="http://x", _view_name="<b>", **OTHERS
    )
    assert passed.metadata == {"version": "2.1.0"}
    assert passed.data["state"] == {
        "_model_module": CONTROLS,
        "_model_module_version": "2.0.0",
        "_model_name": "TextModel",
        "_view_module": CONTROLS,
        "_view_module_version": "2.0.0",
        "_view_name": "TextView",
    }
    # No update changes them.
    passed = guest.update(name, _model_name="HTMLModel", _view_name="HTMLView", value="x")
    assert passed.data["state"]["_view_name"] == "TextView"
    assert guest.update(name, _view_name="HTMLView").data["state"] == {}
    # What the table does not have is refused, also in a module that is let in.
    _, refused = guest.open("Tomorrow")
    assert refused == Refused("jupyter.widget", CONTROLS, "TomorrowModel")


def test_a_module_that_the_policy_does_not_name_is_refused_whatever_is_known_of_it():
    guest = Guest(modules=(BASE, OUTPUT))
    assert guest.open("Any", "anywidget")[1] == Refused("jupyter.widget", "anywidget", "AnyModel")
    assert guest.open("Text")[1] == Refused("jupyter.widget", CONTROLS, "TextModel")
    assert isinstance(guest.open("Layout", BASE)[1], Passed)  # positive control


def test_a_widget_takes_the_focus_once_a_request_and_says_nothing_else_of_its_own(guest):
    name, _ = guest.open("Text")

    def custom(content, parent):
        data = {"method": "custom", "content": content}
        passed = guest.tell("comm_msg", {"comm_id": name, "data": data}, parent=parent)
        return passed and passed.data["content"]

    assert custom({"do": "focus"}, "p1") == {"do": "focus"}
    assert custom({"do": "focus"}, "p1") is None
    assert custom({"do": "focus", "then": "x"}, "p2") is None
    assert custom({"do": "blur"}, "p2") == {"do": "blur"}


@pytest.mark.parametrize("name", ["", "<img>", "a b", "x" * 201, None, 3])
def test_a_comm_has_a_plain_id_or_is_dropped(guest, name):
    content = {"comm_id": name, "target_name": "jupyter.widget", "data": {}}
    assert guest.tell("comm_open", content) is None


def test_an_id_is_used_once_at_a_time(guest):
    name, first = guest.open("Label")
    again = opening(name, "HTMLModel")
    assert guest.tell("comm_open", again) is None
    guest.tell("comm_close", {"comm_id": name, "data": {}})
    assert guest.tell("comm_open", again).comm.model.name == "HTMLModel"
    assert first.comm.model.name == "LabelModel"


def test_there_is_an_end_to_the_number_of_comms(guest, monkeypatch):
    monkeypatch.setattr("cellblock.host.output.widgets.MOST", 3)
    assert [guest.open("Label")[1] is not None for _ in range(5)] == [True] * 3 + [False] * 2


def test_what_is_not_committed_is_not_open(guest):
    content = opening("x", "LabelModel")
    guest.comms.clean(messages.CommOut(kind="comm_open", content=content), "p1")
    assert not guest.comms.knows("x")
    assert guest.update("x", value="y") is None


def test_an_operators_module_gets_what_is_said_within_bounds():
    guest = Guest(modules=(*MODULES, "anywidget"))
    paths = [["value"], ["__proto__", "x"], ["a", "constructor"]]
    name, passed = guest.open(
        "Any", "anywidget", _esm="export", paths=paths, buffers=[b"1", b"2", b"3"]
    )
    assert passed.data["state"]["_esm"] == "export"
    assert (passed.data["buffer_paths"], passed.buffers) == ([["value"]], [b"1"])
    assert guest.update(name, anything={"a": 1}).data["state"] == {"anything": {"a": 1}}


def test_a_target_of_the_policy_passes_and_others_are_refused():
    guest = Guest(targets=("mine",))
    content = {"comm_id": "a", "target_name": "mine", "target_module": "http://x", "data": {"a": 1}}
    passed = guest.tell("comm_open", content)
    assert passed.content() == {"comm_id": "a", "target_name": "mine", "data": {"a": 1}}
    assert guest.tell("comm_open", content | {"comm_id": "b", "target_name": "x"}) == Refused("x")
    control = content | {"comm_id": "b", "target_name": "jupyter.widget.control"}
    assert guest.tell("comm_open", control) == Refused("jupyter.widget.control")


def test_a_view_in_an_output_is_of_an_admitted_widget(guest):
    view = "application/vnd.jupyter.widget-view+json"
    assert guest.comms.view({"model_id": "no"}) is None
    assert view not in gateway.clean_bundle({view: {"model_id": "no"}, "text/plain": "x"})


@pytest.mark.parametrize("target", ["mine", "jupyter.widget.control"])
def test_the_front_end_opens_what_the_policy_names_and_nothing_else(target):
    comms = Comms(modules=MODULES, targets=("mine",))
    assert comms.opened_by_front({"comm_id": "f", "target_name": target, "data": {}})
    assert comms.listing(target) == {"f": {"target_name": target}}
    comms.forget("f")
    assert comms.listing(None) == {}
    for other in ("other", "jupyter.widget", None):
        assert not comms.opened_by_front({"comm_id": "f", "target_name": other, "data": {}})


# --- values -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stem", "key", "value"),
    [
        ("IntSlider", "value", "<img>"),
        ("IntSlider", "value", {"a": 1}),
        ("IntSlider", "readout_format", "<img src=x>"),
        ("IntSlider", "readout_format", "999999999d"),
        ("IntSlider", "orientation", "a b"),
        ("IntsInput", "value", ["<img>"]),
        ("ToggleButton", "icon", "<img src=x>"),
        ("ToggleButtons", "icons", ["check jp-Dialog"]),
        ("ToggleButtons", "icons", ["check", "li"]),
        ("Text", "value", ["a"]),
        ("Tab", "titles", "ab"),
        ("DatePicker", "value", "<img>"),
        ("ColorsInput", "value", ["url(http://x)"]),
        ("Image", "width", "1px;x:y"),
        ("Image", "value", "http://x"),
        ("VBox", "children", "IPY_MODEL_x"),
        ("VBox", "layout", "IPY_MODEL_x"),
        ("Checkbox", "value", "true"),
    ],
)
def test_a_value_of_another_kind_is_left_out_and_said(guest, stem, key, value):
    _, passed = guest.open(stem, **{key: value})
    assert key not in passed.data["state"]
    assert left(passed) == [key]


@pytest.mark.parametrize(
    ("stem", "key", "value"),
    [
        ("IntSlider", "readout_format", "d"),
        ("FloatSlider", "readout_format", ".2f"),
        ("FloatSlider", "readout_format", "$,.2f"),
        ("FloatLogSlider", "readout_format", ".3g"),
        ("FloatSlider", "readout_format", "*>+12,.1~%"),
        ("IntRangeSlider", "value", [1, 2]),
        ("Button", "icon", "spinner spin"),
        ("Button", "icon", "fa-check"),
        ("ToggleButtons", "icons", ["check", "spinner fa-spin", ""]),
        ("DatePicker", "value", {"year": 2024, "month": 1, "date": 2}),
        ("DatePicker", "step", "any"),
        ("Time", "value", "12:30:00.000"),
        ("NaiveDatetime", "value", {"year": 2024, "month": 1, "date": 2, "hours": 0}),
        ("ColorPicker", "value", "rgba(1, 2, 3, 0.5)"),
        ("SelectMultiple", "index", [0, 2]),
        ("Dropdown", "index", None),
        ("Image", "width", "200px"),
        ("Text", "value", "<b>& $x$ \u202e"),
        ("Valid", "readout", "Not valid"),
        ("VBox", "_dom_classes", ["widget-interact", "mine"]),
        ("TagsInput", "tag_style", "success"),
    ],
)
def test_what_ipywidgets_itself_sends_passes_as_it_is(guest, stem, key, value):
    _, passed = guest.open(stem, **{key: value})
    assert passed.data["state"][key] == value
    assert passed.left == []


def test_html_is_sanitised_and_what_is_all_refused_has_a_word_in_its_place(guest):
    classes = ["jp-Dialog", "lm-Menu", "mine", "a b", 3]
    _, passed = guest.open("HTML", value="<b>a</b><img src=x onerror=1>", _dom_classes=classes)
    assert passed.data["state"]["value"].startswith("<b>a</b>")
    assert "onerror" not in passed.data["state"]["value"]
    assert passed.data["state"]["_dom_classes"] == ["mine"]  # none of the page's
    _, passed = guest.open("HTML", value="<script>1</script>")
    assert passed.data["state"]["value"] == "<small>[cellblock left out script]</small>"
    _, passed = guest.open("Label", value=r"$\href{javascript:1}{x}$")
    assert r"\href" not in passed.data["state"]["value"]


def test_only_references_to_admitted_widgets_of_the_right_kind_pass(guest):
    layout, _ = guest.open("Layout", BASE)
    text, _ = guest.open("Text")
    children = [f"IPY_MODEL_{text}", "IPY_MODEL_no", "plain", 3]
    _, passed = guest.open("VBox", children=children, layout=f"IPY_MODEL_{layout}")
    assert passed.data["state"]["children"] == [f"IPY_MODEL_{text}"]
    assert passed.data["state"]["layout"] == f"IPY_MODEL_{layout}"
    _, passed = guest.open("VBox", layout=f"IPY_MODEL_{text}")
    assert left(passed) == ["layout"]


@pytest.mark.parametrize(
    "value",
    ["1px", "50%", "calc(100% - 20px)", "1px solid var(--x)", "rgb(1 2 3 / 50%)", "auto", "",
     "repeat(2, minmax(0, 1fr))", '"a b" "c d"', "1 1 0%", "'Times New Roman', serif", None],
)  # fmt: skip
def test_css_that_names_nothing_passes(value):
    assert widget_models.size(value, None) == value


@pytest.mark.parametrize(
    "value",
    ["url(x)", "URL(x)", "image-set('x')", "u\\72l(x)", "1px;a:b", "red}b{", "-5px", "element(#a)",
     "attr(title)", "env(x)", "'http://x'", "@import", "x" * 501, 5, "paint(x)", "url\u00a0(x)"],
)  # fmt: skip
def test_css_that_loads_moves_or_is_more_than_a_value_does_not(value):
    with pytest.raises(RefusedError):
        widget_models.size(value, None)


def test_a_margin_pulls_nothing_over_its_neighbours_and_an_offset_moves_no_widget():
    refused = {
        widget_models.margin: [
            "-1px",
            "-.99in",
            "calc(0px - 9px)",
            "max(-1px, -2px)",
            "0 0 -4px 0",
        ],
        widget_models.offset: ["1px", "-1px", "50%", "calc(1px)"],
    }
    for clean, values in refused.items():
        for value in values:
            with pytest.raises(RefusedError):
                clean(value, None)
    assert widget_models.offset("auto", None) == "auto"


# --- bytes ------------------------------------------------------------------------------------


def image(guest, said, data):
    return guest.open("Image", format=said, paths=[["value"]], buffers=[data])


def test_bytes_travel_as_a_buffer_at_their_key(guest):
    _, passed = image(guest, "png", PNG)
    assert (passed.data["buffer_paths"], passed.buffers) == ([["value"]], [PNG])
    assert "value" not in passed.data["state"]


@pytest.mark.parametrize(
    "path", [["__proto__", "x"], ["constructor", "prototype", "x"], ["format"], [], "value", [1]]
)
def test_a_buffer_has_no_other_place(guest, path):
    _, passed = guest.open("Image", format="png", paths=[path], buffers=[b"x"])
    assert (passed.data["buffer_paths"], passed.buffers) == ([], [])


def test_an_image_at_an_address_is_left_out_but_for_one_that_carries_its_own(guest):
    _, passed = image(guest, "url", b"http://x/")
    assert (left(passed), passed.buffers) == (["value"], [])
    assert "format" not in passed.data["state"]
    carried = b"data:image/png;base64,iVBORw0K"
    assert image(guest, "url", carried)[1].buffers == [carried]


def test_bytes_that_passed_as_a_picture_do_not_become_anything_else(guest):
    name, _ = image(guest, "png", b"http://x/")
    for said in ("url", "svg+xml", "jpeg2000"):
        assert left(guest.update(name, format=said)) == ["format"]
    assert guest.update(name, format="gif").data["state"] == {"format": "gif"}


def test_a_drawing_is_cleaned_and_one_that_is_none_is_left_out(guest):
    svg = b"<svg xmlns='http://www.w3.org/2000/svg' onload='x()'><rect width='1'/></svg>"
    _, passed = image(guest, "svg+xml", svg)
    assert b"onload" not in passed.buffers[0]
    assert left(image(guest, "svg+xml", b"<html>")[1]) == ["value"]


@pytest.mark.parametrize(
    ("said", "data", "passes"),
    [
        ("mp4", b"\0\0\0\x18ftypmp42", True),
        ("webm", b"\x1a\x45\xdf\xa3....", True),
        ("ogg", b"OggS", True),
        ("mp4", b"", True),
        ("mp4", b"#EXTM3U\nhttp://x", False),
        ("mp4", b"\xef\xbb\xbf#EXTM3U", False),
        ("x-mpegurl", b"OggS", False),
        ("url", b"OggS", False),
    ],
)
def test_film_is_what_its_first_bytes_say(said, data, passes):
    if passes:
        assert widgets.clean_media("VideoModel", said, data) == data
    else:
        with pytest.raises(RefusedError):
            widgets.clean_media("VideoModel", said, data)


def test_an_uploaded_file_keeps_its_bytes_beside_it(guest):
    row = {"name": "a", "type": "t", "size": 1, "last_modified": 2, "more": "no"}
    _, passed = guest.open(
        "FileUpload", value=[row], paths=[["value", 0, "content"]], buffers=[b"x"]
    )
    assert passed.data["state"]["value"] == [{k: row[k] for k in row if k != "more"}]
    assert passed.data["buffer_paths"] == [["value", 0, "content"]]


# --- descriptions and links -------------------------------------------------------------------


def test_a_description_that_becomes_html_is_told_again_sanitised(guest):
    name, passed = guest.open(
        "Text", description="<i>a</i><img src=//x>", description_allow_html=False
    )
    assert passed.data["state"]["description"] == "<i>a</i><img src=//x>"
    state = guest.update(name, description_allow_html=True).data["state"]
    assert state["description"].startswith("<i>a</i>")
    assert "//x" not in state["description"]


def end(guest, stem, key="value"):
    """Return an end of a link: a new widget and its key."""
    return [f"IPY_MODEL_{guest.open(stem)[0]}", key]


@pytest.mark.parametrize(
    ("source", "target", "passes"),
    [
        (("IntSlider", "value"), ("FloatSlider", "value"), True),
        (("Play", "value"), ("IntSlider", "value"), True),
        (("IntSlider", "value"), ("Label", "value"), True),
        (("IntSlider", "value"), ("HTML", "value"), True),
        (("Checkbox", "value"), ("Text", "disabled"), True),
        (("Text", "value"), ("Text", "value"), True),
        (("Text", "value"), ("Textarea", "value"), True),
        (("HTML", "value"), ("HTML", "value"), True),
        (("Tab", "selected_index"), ("Dropdown", "index"), True),
        (("Text", "value"), ("HTML", "value"), False),
        (("Text", "value"), ("Label", "value"), False),
        (("Text", "value"), ("Text", "description"), False),
        (("Checkbox", "value"), ("Text", "description_allow_html"), False),
        (("TagsInput", "value"), ("IntsInput", "value"), False),
        (("Text", "value"), ("IntSlider", "readout_format"), False),
        (("Text", "value"), ("Image", "format"), False),
        (("Text", "value"), ("HTML", "_view_name"), False),
        (("Text", "value"), ("HTML", "layout"), False),
        (("Text", "value"), ("ToggleButton", "icon"), False),
        (("Image", "value"), ("Image", "value"), False),
        (("Text", "nothing"), ("Text", "value"), False),
    ],
)
def test_a_link_carries_only_what_may_stand_at_its_other_end(guest, source, target, passes):
    _, passed = guest.open(
        "DirectionalLink", source=end(guest, *source), target=end(guest, *target)
    )
    assert ({"source", "target"} <= set(passed.data["state"])) is passes


def test_a_link_both_ways_is_judged_both_ways(guest):
    ends = {"source": end(guest, "HTML"), "target": end(guest, "Text")}
    assert left(guest.open("DirectionalLink", **ends)[1]) == []
    assert left(guest.open("Link", **ends)[1]) == ["target"]
    # One whose end is changed is judged with the other.
    text, number, html = (end(guest, stem) for stem in ("Text", "IntSlider", "HTML"))
    name, _ = guest.open("DirectionalLink", source=number, target=html)
    assert left(guest.update(name, source=text)) == ["target"]


def test_an_update_carries_all_that_it_was_judged_by(guest):
    """Else a front end that missed the one before, dropped on its way, makes another whole of it."""
    html, number, text, field = (
        end(guest, stem) for stem in ("HTML", "IntSlider", "Text", "Textarea")
    )
    link, _ = guest.open("DirectionalLink", source=number, target=html)
    guest.update(link, source=text, target=field)
    assert guest.update(link, source=text).data["state"] == {"source": text, "target": field}
    picture, _ = image(guest, "url", b"data:image/png;base64,iVBORw0K")
    guest.update(picture, format="png", paths=[["value"]], buffers=[PNG])
    passed = guest.update(picture, paths=[["value"]], buffers=[b"https://x/"])
    assert passed.data["state"] == {"format": "png"}
    drawing, _ = image(guest, "svg+xml", b"<svg xmlns='http://www.w3.org/2000/svg'/>")
    assert left(guest.update(drawing, format="svg+xml")) == ["format"]
    name, _ = guest.open("Text", description="a", description_allow_html=True)
    shown = {"description": "b", "description_allow_html": True}
    assert guest.update(name, description="b").data["state"] == shown
    assert guest.update(name, description_allow_html=True).data["state"] == shown


def test_what_a_link_named_is_never_another_widget(monkeypatch):
    """A link in the page keeps the widget that is closed, one in a saved notebook its id."""
    linked = set()
    guest = Guest(linked=linked)
    text, other = end(guest, "Text"), end(guest, "Text")
    link, _ = guest.open("DirectionalLink", source=text, target=other)
    name = text[0].removeprefix("IPY_MODEL_")
    guest.tell("comm_close", {"comm_id": name, "data": {}})
    assert guest.tell("comm_open", opening(name, "HTMLModel")) is None
    assert left(guest.update(link, target=end(guest, "HTML"))) == ["target"]
    assert Guest(linked=linked).tell("comm_open", opening(name, "HTMLModel")) is None
    monkeypatch.setattr(widgets, "MOST_LINKED", 2)
    assert guest.open("HTML")[1] is None


# --- captures, views, states ------------------------------------------------------------------


def test_outputs_are_what_the_gateway_makes_of_them(guest):
    html = {"text/html": "<b>x</b><script>1</script>", "text/plain": "x"}
    outputs = [
        {"output_type": "display_data", "data": html, "metadata": {}},
        {"output_type": "stream", "name": "stdout", "text": ["a\n", "\x1b]0;t\x07b"]},
        {"output_type": "update_display_data", "data": html},
        "no",
    ]
    name, passed = guest.open("Output", OUTPUT, outputs=outputs)
    first, second = passed.data["state"]["outputs"]
    assert "<script>" not in first["data"]["text/html"]
    assert second == {"output_type": "stream", "name": "stdout", "text": "a\nb"}
    echoed = guest.update(name, method="echo_update", outputs=outputs)
    assert echoed.data["state"] == {}


def test_a_capture_is_of_the_request_that_runs_and_is_released(guest):
    name, passed = guest.open("Output", OUTPUT, msg_id="anything")
    assert passed.data["state"]["msg_id"] == "p1"
    (released,) = guest.comms.release()
    assert released.data["state"] == {"msg_id": ""}
    assert list(guest.comms.release()) == []
    assert guest.update(name, msg_id="").data["state"] == {"msg_id": ""}


def test_all_states_are_told_by_the_names_their_widgets_were_let_in_by(guest):
    picture, _ = image(guest, "png", PNG)
    html, _ = guest.open("HTML", value="x")
    assert guest.comms.opened_by_front({"comm_id": "f", "target_name": "jupyter.widget.control"})
    row = {"model_name": "AnyModel", "model_module": "anywidget", "model_module_version": "*"}
    states = {
        html: row | {"state": {"value": "<script>1</script>", "_model_name": "AnyModel"}},
        picture: row | {"state": {"format": "png"}},
        "never": row | {"state": {"_esm": "x"}},
    }
    data = {
        "method": "update_states",
        "states": states,
        "buffer_paths": [[picture, "state", "value"], ["__proto__", "x"]],
    }
    passed = guest.tell("comm_msg", {"comm_id": "f", "data": data}, [PNG, b"x"])
    shown = passed.data["states"]
    assert set(shown) == {html, picture}
    assert shown[html]["model_name"] == "HTMLModel"
    assert shown[html]["state"]["_model_name"] == "HTMLModel"
    assert "<script>" not in shown[html]["state"]["value"]
    assert (passed.data["buffer_paths"], passed.buffers) == ([[picture, "state", "value"]], [PNG])


def test_every_model_of_ipywidgets_is_in_the_table_with_every_key():
    widget = pytest.importorskip("ipywidgets.widgets.widget", reason="ipywidgets is not installed")
    checked = 0
    for kind in _kinds(widget._registry._registry):
        name, module = kind._model_name.default_value, kind._model_module.default_value
        if name == "DOMWidgetModel":  # abstract
            continue
        model = MODELS[module, name]
        assert model.view_module == kind._view_module.default_value
        assert model.view == kind._view_name.default_value
        keys = {k for k in kind.class_trait_names(sync=True) if k not in model.identity()}
        assert keys <= set(model.keys), name
        checked += 1
    assert checked == len(MODELS)


def _kinds(tree):
    """Yield the classes of a registry: dicts by module, version and name."""
    if isinstance(tree, dict):
        for branch in tree.values():
            yield from _kinds(branch)
    else:
        yield tree


def test_a_large_grid_has_its_areas_and_one_without_end_has_none(guest):
    rows = " ".join(
        f'"{" ".join(f"widget{9 * row + at:03}" for at in range(9))}"' for row in range(40)
    )
    _, passed = guest.open("Layout", BASE, grid_template_areas=rows)
    assert passed.data["state"]["grid_template_areas"] == rows
    for value, why in (
        ('"a b" ' * 50_000, "more than 100,000 characters"),
        ('"a" ' * 200 + "url(//e)", "more than 500 characters"),
        ("a" * 501, "more than 500 characters"),
        ("a;b", "not a plain CSS value"),
    ):
        _, passed = guest.open("Layout", BASE, grid_template_areas=value)
        assert passed.left == [("grid_template_areas", why)]
