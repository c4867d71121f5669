"""What is said of widgets that a cell displayed: what they show in the end."""

import pytest

from cellblock import Result
from cellblock.api.results import logged
from cellblock.api.widget_words import WidgetWords
from cellblock.host.cell.transcript import Output
from cellblock.host.output.widgets import VIEW, WIDGET

BAR = {"_model_name": "IntProgressModel", "value": 0, "max": 3, "description": "Read"}
TEXT = {"_model_name": "HTMLModel", "value": ""}
BOX = {"_model_name": "HBoxModel", "children": ["IPY_MODEL_bar", "IPY_MODEL_text"]}


def opened(name, state, target=WIDGET):
    data = {"state": state}
    return Output("comm_open", {"comm_id": name, "target_name": target, "data": data})


def updated(name, **state):
    data = {"method": "update", "state": state}
    return Output("comm_msg", {"comm_id": name, "data": data})


def closed(name):
    return Output("comm_close", {"comm_id": name, "data": {}})


def displayed(name, kind="display_data"):
    data = {"text/plain": "as it began", VIEW: {"model_id": name}}
    return Output(kind, {"data": data, "metadata": {}, "execution_count": 1})


def read(words, *outputs):
    """Return what is read of a cell with these outputs, in a result and in a log."""
    for one in outputs:
        words.take(one)
    widgets = words.end_cell(outputs)
    result = Result(status="ok", outputs=outputs, widgets=widgets)
    _, _, said = result.to_string().partition("\n\n")
    return said.removeprefix("displayed:\n").removeprefix("Displayed: ").removeprefix(
        f"<{VIEW}> "
    ).removeprefix("result:\n"), logged(result)


@pytest.fixture
def words():
    return WidgetWords()


MADE = (opened("bar", BAR), opened("text", TEXT), opened("box", BOX))


def test_a_display_says_what_its_widgets_show_in_the_end(words):
    cell = (*MADE, displayed("box"), updated("bar", value=1))
    cell += (updated("text", value="\u20073/3\u2007[00:01&lt;00:00]"), updated("bar", value=3))
    said, log = read(words, *cell)
    assert said == "Read 3 of 3 3/3 [00:01<00:00]"
    assert log == f"{said}\n"


def test_a_value_that_is_a_widget_says_so_too(words):
    assert read(words, *MADE, displayed("bar", "execute_result"), updated("bar", value=2))[0] == (
        "Read 2 of 3"
    )


def test_a_widget_that_did_not_change_is_as_it_was_displayed(words):
    assert read(words, *MADE, displayed("box"))[0] == "as it began"
    assert read(words, displayed("unknown"), updated("unknown", value=3))[0] == "as it began"
    assert read(words, displayed("box"))[0] == "as it began"


def test_a_widget_of_an_earlier_cell_is_as_it_is_now(words):
    read(words, *MADE, displayed("box"))
    assert read(words, displayed("box"), updated("text", value="<b>done</b>"))[0] == (
        "Read 0 of 3 done"
    )


def test_nothing_is_shown_of_a_widget_that_was_closed(words):
    assert read(words, *MADE, displayed("box"), updated("bar", value=3), closed("box")) == ("", "")
    shown = read(words, *MADE, displayed("box"), closed("bar"), updated("text", value="x"))
    assert shown[0] == "x"


@pytest.mark.parametrize(
    ("state", "update", "said"),
    [
        (
            {"_model_name": "IntSliderModel", "value": 1, "min": 0, "max": 9, "description": "n"},
            {"value": 4},
            "IntSlider(value=4, max=9, description='n')",
        ),
        (
            {"_model_name": "DropdownModel", "_options_labels": ["a", "b"], "index": 0},
            {"index": 1},
            "Dropdown(value='b')",
        ),
        ({"_model_name": "TextModel", "value": "a"}, {"value": "\nstderr:"}, "Text(value='\\nstderr:')"),
        ({"_model_name": "LabelModel", "value": "a"}, {"value": "stderr:\nx"}, "stderr: x"),
        ({"_model_name": "ButtonModel"}, {"description": "Go"}, "Button(description='Go')"),
        ({"_model_name": "TextModel"}, {"value": "x" * 9_000}, "Text(value='xxx"),
    ],
)  # fmt: skip
def test_other_widgets_are_written_as_objects(words, state, update, said):
    found, _ = read(words, opened("it", state), displayed("it"), updated("it", **update))
    assert found.startswith(said)
    assert len(found) < 350


def test_boxes_that_hold_themselves_or_thousands_are_read_within_bounds(words):
    loop = {"_model_name": "VBoxModel", "children": ["IPY_MODEL_it", "IPY_MODEL_it"]}
    cell = (opened("it", loop), displayed("it"), updated("it", children=["IPY_MODEL_it"] * 10**4))
    assert read(words, *cell)[1] == ""
    many = [opened(f"{n}", BAR) for n in range(1_100)]
    last = (displayed("1099"), updated("1099", value=1), displayed("0"), updated("0", value=1))
    said, _ = read(words, *many, *last)
    assert "Read 1 of 3; " in said
    assert "as it began" in said


ODD = [None, 5, -1, True, 1.5, float("nan"), float("inf"), 10**400, "x", "", [], {}]
ODD += [["IPY_MODEL_bar", 7, {}, [[10**400]]], {"a": 1}, [[["x"] * 1_000] * 1_000], "\ud800"]
MODELS = ["IntProgressModel", "HTMLModel", "LabelModel", "HBoxModel", "SelectModel", "LayoutModel"]


@pytest.mark.parametrize("odd", ODD, ids=lambda one: repr(one)[:20])
def test_whatever_a_cell_sends_as_a_state_is_said_or_passed_over(words, odd):
    """Of a module that an operator has added, nobody else checks the state."""
    keys = ["_model_name", "_options_labels", "children", "description", "index", "max", "min"]
    for model in MODELS:
        whole = {"_model_name": model, "value": 2, "index": 0, "_options_labels": ["a", "b"]}
        for key in [*keys, "value"]:
            cell = [opened("bar", BAR), opened("w", whole), opened("v", whole | {key: odd})]
            cell += [displayed("w"), displayed("v"), updated("w", **{key: odd}), updated("v", x=1)]
            said = read(words, *cell)[0]
            assert isinstance(said, str)
            assert len(said) < 40_000
        read(words, opened("w", odd), displayed("w"), updated("w", value=1))
        words.take(Output("comm_msg", {"comm_id": "w", "data": {"state": odd}}))
