"""What is shown becomes a cell's outputs as nbclient makes them."""

import json
import time
import tracemalloc

import pytest
from nbclient import NotebookClient
from nbformat import from_dict

from cellblock.batch.run.document import Document, encode
from cellblock.batch.run.outputs import NotebookOutputs
from cellblock.host.cell.transcript import Output
from support.runs import code, document


def stream(text, name="stdout"):
    return Output("stream", {"name": name, "text": text})


def display(text, name=None, kind="display_data"):
    transient = {} if name is None else {"display_id": name}
    content = {"data": {"text/plain": text}, "metadata": {}, "transient": transient}
    if kind == "execute_result":
        content = content | {"execution_count": 1}
    return Output(kind, content)


def update(text, name):
    return display(text, name, "update_display_data")


def clear(*, wait=False):
    return Output("clear_output", {"wait": wait})


ERROR = Output("error", {"ename": "E", "evalue": "v", "traceback": ["t"]})
STREAM = {"output_type": "stream", "name": "stdout"}

SHOWN = {
    "streams go on": [[stream("a"), stream("b"), stream("c", "stderr"), stream("d")]],
    "an error comes last": [[stream("a"), ERROR]],
    "a result has its count": [[display("1", kind="execute_result")]],
    "cleared at once": [[stream("a"), clear(), stream("b")]],
    "cleared by what comes": [[stream("a"), clear(wait=True), display("b")]],
    "cleared by nothing": [[stream("a"), clear(wait=True)]],
    "updated in the cell": [[display("1", "x"), display("2"), update("3", "x")]],
    "updated by a display": [[display("1", "x"), display("2", "x")]],
    "an update of nothing": [[update("3", "x"), stream("a")]],
    "updated in earlier cells": [
        [stream("a"), display("1", "x"), display("2", "y"), display("3", "x")],
        [display("4", "x")],
        [update("5", "x"), update("6", "y"), update("7", "x"), stream("b")],
    ],
    "a display that was cleared": [[display("1", "x"), clear(), stream("a"), update("2", "x")]],
    "cleared in one cell of two": [
        [display("1", "x")],
        [display("2", "x"), clear(), update("3", "x"), display("4", "x")],
    ],
    "a display after what was cleared": [
        [stream("a"), display("1", "x"), clear(wait=True), display("2", "x"), update("3", "x")]
    ],
}


def ours(cells):
    written = Document([code("", id=f"c{n}") for n in range(len(cells))], {}, 5)
    outputs = NotebookOutputs(written)
    for index, shown in enumerate(cells):
        outputs.end_cell(index, code("", id=f"c{index}"), shown)
    return [joined(json.loads(cell)["outputs"]) for cell in written.cells]


def nbclients(cells):
    """The same, by nbclient's own hands."""
    notebook = from_dict(document(*["x"] * len(cells)))
    client = NotebookClient(notebook)
    client.reset_execution_trackers()
    for index, shown in enumerate(cells):
        client.clear_before_next_output = False
        for one in shown:
            header = {"msg_type": one.kind}
            message = {"msg_type": one.kind, "header": header, "parent_header": {"msg_id": "m"}}
            message |= {"content": dict(one.content), "metadata": {}, "buffers": []}
            client.process_message(message, notebook.cells[index], index)
    return [joined(cell.outputs) for cell in notebook.cells]


def joined(outputs):
    """Return outputs with streams that go on in one piece, and texts too."""
    made = []
    for shown in outputs:
        one = {k: dict(v) if k == "data" else v for k, v in shown.items()}
        if "text" in one:
            one["text"] = "".join(one["text"])
        for mime, value in one.get("data", {}).items():
            one["data"][mime] = "".join(value)
        last = made[-1] if made else {}
        if "text" in one and last.get("name") == one["name"]:
            last["text"] += one["text"]
        else:
            made.append(one)
    return made


@pytest.mark.parametrize("cells", SHOWN.values(), ids=SHOWN)
def test_outputs_are_those_that_nbclient_makes(cells):
    assert ours(cells) == nbclients(cells)


def test_a_flood_of_pieces_is_put_together_once():
    outputs = NotebookOutputs(Document([code("", id="a")], {}, 5))
    made = outputs._applied([stream("x" * 100)] * 50_000).outputs()
    assert made == [STREAM | {"text": "x" * 5_000_000}]


def test_updates_of_displays_that_share_an_id_cost_their_number_and_not_its_square():
    shown = [display("0", "x")] * 10_000 + [update(str(n), "x") for n in range(10_000)]
    began = time.process_time()
    (outputs,) = ours([shown])
    assert {one["data"]["text/plain"] for one in outputs} == {"9999"}
    assert len(outputs) == 10_000
    assert time.process_time() - began < 5  # with each update all of them: 13 s


def test_an_earlier_cell_is_written_once_however_often_it_is_updated(monkeypatch):
    written = Document([code("", id="a"), code("", id="b")], {}, 5)
    outputs, puts = NotebookOutputs(written), []
    outputs.end_cell(0, code("", id="a"), [display("1", "x")] * 3)
    monkeypatch.setattr(written, "put", lambda index, _: puts.append(index))
    outputs.end_cell(1, code("", id="b"), [update(str(n), "x") for n in range(1_000)])
    assert puts == [0, 1]


# --- widgets ----------------------------------------------------------------------------------


def comm(kind, name, state, paths=(), buffers=()):
    data = {"state": state, "buffer_paths": [list(path) for path in paths]}
    return Output(kind, {"comm_id": name, "data": data}, buffers=tuple(buffers))


def changes(outputs):
    """Return the widgets that changed, as they stand in a file."""
    return json.loads(encode(outputs.widgets.changes()))


MODEL = {"_model_name": "SliderModel", "_model_module": "m", "_model_module_version": "2"}


def test_widgets_are_told_as_nbclient_tells_them():
    outputs = NotebookOutputs(Document([code("", id="a")], {}, 5))
    outputs._applied(
        [
            comm("comm_open", "w", MODEL | {"value": 1}, [("b",)], [b"hi"]),
            comm("comm_open", "odd", {"value": 1}),
            comm("comm_msg", "w", {"value": 2}, [("b",), ("c", 0)], [b"ho", b"he"]),
            Output("comm_msg", {"comm_id": "w", "data": {"method": "custom", "content": {}}}),
            Output("comm_close", {"comm_id": "w", "data": {}}),
        ],
    )
    assert changes(outputs) == {
        "w": {
            "model_name": "SliderModel",
            "model_module": "m",
            "model_module_version": "2",
            "state": MODEL | {"value": 2},
            "buffers": [
                {"data": "aG8=", "encoding": "base64", "path": ["b"]},
                {"data": "aGU=", "encoding": "base64", "path": ["c", 0]},
            ],
        }
    }
    assert changes(outputs) == {}


def test_an_output_widget_takes_what_is_shown_while_it_captures():
    written = Document([code("", id="a")], {}, 5)
    outputs = NotebookOutputs(written)
    model = {"_model_name": "OutputModel", "msg_id": "", "outputs": []}
    transcript = outputs._applied(
        [
            stream("before"),
            comm("comm_open", "o", model),
            comm("comm_msg", "o", {"msg_id": "m"}),
            stream("in"),
            stream("side"),
            display("1"),
            comm("comm_msg", "o", {"msg_id": ""}),
            stream(" after"),
        ],
    )
    assert transcript.outputs() == [STREAM | {"text": "before after"}]
    (row,) = changes(outputs).values()
    shown = {"output_type": "display_data", "data": {"text/plain": "1"}, "metadata": {}}
    assert row["state"]["outputs"] == [STREAM | {"text": "inside"}, shown]
    assert row["state"]["msg_id"] == ""


def test_nothing_is_changed_of_what_was_handed_in():
    state = {"_model_name": "OutputModel", "outputs": [STREAM | {"text": "x"}]}
    outputs = NotebookOutputs(Document([code("", id="a")], {}, 5))
    outputs._applied(
        [comm("comm_open", "o", state), comm("comm_msg", "o", {"msg_id": "m"}), stream("y")]
    )
    assert state == {"_model_name": "OutputModel", "outputs": [STREAM | {"text": "x"}]}


def test_numbers_in_widgets_are_held_as_what_they_are_in_the_file():
    outputs = NotebookOutputs(Document([code("", id="a")], {}, 5))
    many = {"output_type": "display_data", "metadata": {}}
    many["data"] = {"application/json": [n + 0.5 for n in range(100_000)]}
    tracemalloc.start()
    outputs._applied([comm("comm_open", "w", MODEL | {"outputs": [many]})])
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 900_000


def test_what_a_widget_captured_is_cleared_once_more_comes():
    outputs = NotebookOutputs(Document([code("", id="a")], {}, 5))
    model = {"_model_name": "OutputModel", "msg_id": "", "outputs": []}
    begin, end = comm("comm_msg", "o", {"msg_id": "m"}), comm("comm_msg", "o", {"msg_id": ""})
    outputs._applied([comm("comm_open", "o", model), begin, stream("a"), clear(wait=True), end])
    assert changes(outputs)["o"]["state"]["outputs"] == [STREAM | {"text": "a"}]
    outputs._applied([begin, clear(wait=True), stream("b"), end])
    assert changes(outputs)["o"]["state"]["outputs"] == [STREAM | {"text": "b"}]
