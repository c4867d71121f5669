"""Widgets without a browser: what passes of ipywidgets, handlers' time, runners that keep state."""

import asyncio
import json
import time
from pathlib import Path

import nbformat
import pytest
from jupyter_client.asynchronous import AsyncKernelClient
from nbclient import NotebookClient

from cellblock.jupyter.channels import ECHO_WAIT
from support import reading
from support.kernels import argv_for

pytest.importorskip("ipywidgets", reason="extra 'interactive' is not installed")
VIEW = "application/vnd.jupyter.widget-view+json"
STATE = "application/vnd.jupyter.widget-state+json"
HONEST = (Path(__file__).parent / "widgets_honest.txt").read_text().split("# ---\n")
CLICK = {"method": "custom", "content": {"event": "click"}}


def opened(published):
    """Return the ids of the widgets that were opened, by model name."""
    return {
        c["data"]["state"]["_model_name"]: c["comm_id"] for c in reading.of(published, "comm_open")
    }


def button(kernel, body):
    """Make a button with this handler; return its id."""
    code = f"import ipywidgets as w\ndef f(_):\n    {body}\nb = w.Button(); b.on_click(f); b"
    reply, published = kernel.run(code)
    assert reply["status"] == "ok", reply
    return opened(published)["ButtonModel"]


def click(kernel, name):
    mid = kernel.send("comm_msg", {"comm_id": name, "data": CLICK})
    return kernel.until_idle(mid, timeout=20)


@pytest.mark.quick
def test_a_widget_is_shown_with_all_that_it_consists_of(data):
    _, published = data.run("import ipywidgets as w\nw.IntSlider(description='n')")
    (result,) = reading.of(published, "execute_result")
    made = opened(published)
    assert set(made) == {"IntSliderModel", "LayoutModel", "SliderStyleModel"}
    assert result["data"][VIEW]["model_id"] == made["IntSliderModel"]
    assert result["data"]["text/plain"].startswith("IntSlider(value=0")
    listed = data.ask("comm_info_request", {"target_name": "jupyter.widget"})["content"]["comms"]
    assert set(made.values()) <= set(listed)


def test_honest_programs_lose_nothing(data):
    """In order: later programs use what earlier ones imported."""
    for number, program in enumerate(HONEST):
        reply, published = data.run(program)
        assert reply["status"] == "ok", f"{number}: {reply['ename']}: {reply['evalue']}"
        assert reading.cards(published, "comm") == [], number
        assert "cellblock left out" not in str([m["content"] for m in published]), number


@pytest.mark.quick
def test_what_a_handler_prints_belongs_to_the_click(data):
    published = click(data, button(data, "print('clicked')"))
    assert reading.stream(published) == "clicked\n"


def test_an_error_in_a_handler_is_shown_and_costs_nothing(data):
    published = click(data, button(data, "1 / 0"))
    assert "ZeroDivisionError" in reading.stream(published) + str(reading.of(published, "error"))
    assert data.run("1 + 1")[0]["status"] == "ok"


def test_a_handler_that_does_not_end_is_stopped_like_a_cell(start, world):
    kernel = start(world.policy("extends = 'data'\ntimeout = 1.0\n"), world=world)
    kernel.run("kept = 5")
    published = click(kernel, button(kernel, "while True: pass"))
    assert "it ran longer than 1 s" in str([m["content"] for m in published])
    assert reading.result(kernel.run("kept")[1]) == "5"
    # One that can't be interrupted costs its guest, and a card says so.
    body = "while True:\n        try:\n            while True: pass\n        except BaseException: pass"
    published = click(kernel, button(kernel, body))
    assert [card["reason"] for card in reading.cards(published, "outcome")] == ["timeout"]
    assert kernel.run("1 + 1")[0]["status"] == "ok"


def test_a_file_that_is_too_large_is_said_to_be(data):
    name = opened(data.run("import ipywidgets as w\nu = w.FileUpload(); u")[1])["FileUploadModel"]
    row = {"name": "a", "type": "", "size": 1, "last_modified": 1, "content": None}
    content = {
        "method": "update",
        "state": {"value": [row]},
        "buffer_paths": [["value", 0, "content"]],
    }
    large = {"comm_id": name, "data": content}
    published = data.until_idle(data.send("comm_msg", large, buffers=[bytes(30 << 20)]))
    assert "did not reach the cell" in reading.card_text(published)
    assert reading.result(data.run("len(u.value)")[1]) == "0"
    data.until_idle(data.send("comm_msg", large, buffers=[bytes(10 << 20)]))
    assert reading.result(data.run("len(u.value[0].content)")[1]) == str(10 << 20)


def test_many_messages_of_one_widget_are_passed_on(data):
    code = "import ipywidgets as w\np = w.IntProgress(max=5000)\nfor i in range(5000): p.value = i + 1\np.value"
    _, published = data.run(code)
    told = [c["data"]["state"] for c in reading.of(published, "comm_msg")]
    assert told[-1] == {"value": 5000}
    assert len(told) == 5000


def test_the_states_of_all_widgets_are_told_to_a_page_that_asks(data):
    made = opened(
        data.run("import ipywidgets as w\nh = w.HTML('<b>x</b><script>1</script>'); h")[1]
    )
    content = {"comm_id": "ask", "target_name": "jupyter.widget.control", "data": {}}
    data.until_idle(data.send("comm_open", content, metadata={"version": "1.0.0"}))
    asked = {"comm_id": "ask", "data": {"method": "request_states"}}
    published = data.until_idle(data.send("comm_msg", asked))
    (answer,) = [c["data"] for c in reading.of(published, "comm_msg") if c["comm_id"] == "ask"]
    row = answer["states"][made["HTMLModel"]]
    assert (row["model_name"], row["model_module"]) == ("HTMLModel", "@jupyter-widgets/controls")
    assert row["state"]["value"].startswith("<b>x</b>")
    assert "<script>" not in row["state"]["value"]


def test_a_runner_keeps_the_state_of_widgets(world, monkeypatch):
    cells = [
        "import ipywidgets as w\nout = w.Output()\nwith out: print('kept')\nout",
        "w.HTML('<b>x</b><script>1</script>')",
        "import anywidget\nclass A(anywidget.AnyWidget):\n    _esm = 'export default {}'\nA()",
    ]
    folder = world.home / ".local/share/jupyter/kernels/data"
    folder.mkdir(parents=True)
    spec = {"argv": argv_for("data"), "display_name": "data", "language": "python"}
    (folder / "kernel.json").write_text(json.dumps(spec))
    saved = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in cells],
        metadata={"kernelspec": {"name": "data", "display_name": "data"}},
    )
    for name, value in world.environment().items():
        monkeypatch.setenv(name, value)
    NotebookClient(saved, timeout=60, resources={"metadata": {"path": str(world.work)}}).execute()
    rows = saved.metadata["widgets"][STATE]["state"].values()
    models = {row["model_name"]: row["state"] for row in rows}
    assert models["OutputModel"]["outputs"][0]["text"] == "kept\n"
    assert "<script>" not in models["HTMLModel"]["value"]
    assert "AnyModel" not in models
    assert "did not show a widget of anywidget" in str(saved.cells[2].outputs)


CAPTURE = "import ipywidgets as w\nout = w.Output()\nwith out: print('captured')"


def test_a_reply_is_heard_by_a_client_that_says_what_its_output_widgets_captured(data):
    """As nbclient does, on the socket that its loop waits at: that takes a reply's wake-up."""

    async def run_cell():
        client = AsyncKernelClient()
        client.load_connection_info(data.info)
        client.start_channels(stdin=False, hb=False, control=False)
        waiting = asyncio.ensure_future(client.get_shell_msg(timeout=60))
        mid = client.execute(CAPTURE)
        await asyncio.sleep(0)
        data.until(lambda m: m["msg_type"] == "stream", mid)
        data.shell.poll(300)  # a reply would be there by now, and this loop has not heard of it
        client.shell_channel.send(client.session.msg("comm_msg", {"comm_id": "c", "data": {}}))
        try:
            return mid, await asyncio.wait_for(waiting, 5)
        finally:
            client.stop_channels()

    mid, reply = asyncio.run(run_cell())
    assert reply["msg_type"] == "execute_reply"
    assert reply["parent_header"]["msg_id"] == mid


def test_a_front_end_that_says_nothing_of_captures_is_waited_for_once(data):
    assert data.run(CAPTURE)[0]["status"] == "ok"
    began = time.monotonic()
    assert data.run(CAPTURE)[0]["status"] == "ok"
    assert time.monotonic() - began < ECHO_WAIT / 2


def test_a_handler_can_not_step_back_and_costs_nothing(data):
    name = button(data, "get_ipython().run_line_magic('undo', '9')")
    published = click(data, name)
    assert "%undo works only in a cell of the notebook" in str(published)
    assert reading.cards(published, "outcome") == []
    reply, _ = data.run("b.description")
    assert reply["status"] == "ok"
