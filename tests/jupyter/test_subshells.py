"""Subshells (JEP 91): cells and widgets are answered while the main shell runs a cell."""

import time

import pytest

from support import reading
from support.client import is_idle

SLIDER = "import ipywidgets as w, time\ns = w.IntSlider()\n"
WAIT = "until = time.time() + 10\nwhile not s.value and time.time() < until: time.sleep(0.01)\n"


@pytest.fixture(scope="module")
def kernel(start_shared, shared_world):
    """A kernel under preset data, whose cells may run for six seconds."""
    policy = shared_world.policy('extends = "data"\nmode = "unsafe"\ntimeout = 6\n')
    return start_shared(policy, "--allow-unsafe")


def made(kernel):
    return kernel.ask("create_subshell_request", {}, "control")["content"]["subshell_id"]


def send(kernel, subshell, kind, content):
    header = kernel.session.msg_header(kind) | {"subshell_id": subshell}
    return kernel.send(kind, content, header=header)


def begin(kernel, subshell, code):
    """Send a cell to a subshell, or None for the main shell, and wait until it runs."""
    # With an end of its own, which is written by itself, the line may come in two messages.
    code = f"print('go', end='', flush=True)\n{code}"
    mid = send(kernel, subshell, "execute_request", {"code": code, "stop_on_error": False})
    kernel.until(lambda m: m["msg_type"] == "stream", mid)
    return mid


def run(kernel, subshell, code):
    mid = send(kernel, subshell, "execute_request", {"code": code, "stop_on_error": False})
    return kernel.reply(mid)["content"], kernel.until_idle(mid)


def published(kernel, *ids):
    """Return what was published of each of these requests, when all have ended."""
    shown = {mid: [] for mid in ids}
    while not all(map(any, (map(is_idle, messages) for messages in shown.values()))):
        message = kernel.recv("iopub")
        if (mid := message["parent_header"].get("msg_id")) in shown:
            shown[mid].append(message)
    return shown


def slider_in(published):
    (result,) = reading.of(published, "execute_result")
    return result["data"]["application/vnd.jupyter.widget-view+json"]["model_id"]


@pytest.fixture
def subshell(kernel):
    name = made(kernel)
    yield name
    kernel.ask("delete_subshell_request", {"subshell_id": name}, "control")


def move(kernel, subshell, slider, value=7):
    data = {"method": "update", "state": {"value": value}, "buffer_paths": []}
    return send(kernel, subshell, "comm_msg", {"comm_id": slider, "data": data})


def test_a_kernel_says_that_it_has_subshells_and_lists_them(kernel, subshell):
    info = kernel.ask("kernel_info_request", {})["content"]
    assert info["supported_features"] == ["kernel subshells"]
    assert kernel.ask("list_subshell_request", {}, "control")["content"]["subshell_id"] == [
        subshell
    ]


def test_a_slider_answers_while_a_cell_runs(kernel, subshell):
    slider = slider_in(kernel.run(f"{SLIDER}s")[1])
    mid = begin(kernel, None, f"{WAIT}print(s.value)")
    assert reading.stream(published(kernel, move(kernel, subshell, slider), mid)[mid]) == "7\n"


def test_a_figure_that_a_cell_is_still_drawing_is_not_shown_by_a_widgets_message(kernel, subshell):
    hook = "def hook(): print('hook')\nget_ipython().events.register('post_execute', hook)\n"
    slider = slider_in(kernel.run(f"{SLIDER}{hook}s")[1])
    mid = begin(kernel, None, f"{WAIT}print(s.value)")
    moved = move(kernel, subshell, slider)
    shown = published(kernel, moved, mid)
    assert (reading.stream(shown[moved]), reading.stream(shown[mid])) == ("", "7\nhook\n")
    moved = move(kernel, subshell, slider, 8)  # no cell runs: what the handler has drawn is shown
    assert reading.stream(published(kernel, moved)[moved]) == "hook\n"
    kernel.run("get_ipython().events.unregister('post_execute', hook)")


def test_a_subshell_that_is_made_while_a_cell_runs_hears_at_once(kernel):
    slider = slider_in(kernel.run(f"{SLIDER}s")[1])
    mid = begin(kernel, None, f"{WAIT}print(s.value)")
    name = made(kernel)
    assert reading.stream(published(kernel, move(kernel, name, slider), mid)[mid]) == "7\n"
    kernel.ask("delete_subshell_request", {"subshell_id": name}, "control")


def test_a_handler_in_a_subshell_may_start_a_task_which_goes_on(kernel, subshell):
    code = "import asyncio\nasync def later():\n    await asyncio.sleep(0.05)\n    s.value = 7\n"
    kernel.run(SLIDER + code)
    begun = "t = asyncio.get_running_loop().create_task(later())"
    assert run(kernel, subshell, begun)[0]["status"] == "ok"
    mid = send(kernel, None, "execute_request", {"code": f"{WAIT}print(s.value)"})
    assert reading.stream(kernel.until_idle(mid)) == "7\n"


def test_what_each_prints_and_returns_is_shown_under_its_own_request(kernel, subshell):
    kernel.run("import threading, time\nb = threading.Barrier(2)")
    code = "b.wait()\nfor _ in range(20):\n    print({0!r}); time.sleep(0.002)\n{0!r}"
    ids = {
        name: send(kernel, shell, "execute_request", {"code": code.format(name)})
        for name, shell in {"main": None, "beside": subshell}.items()
    }
    shown = published(kernel, *ids.values())
    for name, mid in ids.items():
        assert set(reading.stream(shown[mid]).split()) == {name}
        assert reading.result(shown[mid]) == repr(name)


def test_a_subshell_over_its_time_costs_the_cell_beside_it_which_says_so(kernel, subshell):
    kernel.run("import time\nx = 5")
    time.sleep(0.2)
    bad = begin(kernel, subshell, "x = 0\nwhile True: pass")
    time.sleep(1)
    mid = begin(kernel, None, "time.sleep(60)")
    reply, published = kernel.reply(bad)["content"], kernel.until_idle(bad)
    assert (reply["ename"], reply["evalue"]) == ("CellStopped", "it ran longer than 6 s (timeout)")
    assert "Your variables are as they were before it." in reading.card_text(published)
    reply = kernel.reply(mid)["content"]
    assert reply["evalue"] == (
        "with one that ran beside it, of which: it ran longer than 6 s (timeout)"
    )
    kernel.until_idle(mid)
    assert reading.result(kernel.run("x")[1]) == "5"
    assert run(kernel, subshell, "x")[0]["status"] == "ok"


def test_what_ended_while_a_subshell_ran_is_kept_once_that_has_ended(kernel, subshell):
    kernel.run("import time, os\nx = 1")
    beside = begin(kernel, subshell, "time.sleep(0.5)\ny = 2")
    assert kernel.run("x = (2).bit_length() * 10")[0]["status"] == "ok"
    kernel.reply(beside)
    time.sleep(0.3)
    assert kernel.run("os._exit(1)")[0]["ename"] == "CellStopped"
    assert reading.result(kernel.run("x, y")[1]) == "(20, 2)"
    thread = run(kernel, subshell, "import threading\nthreading.current_thread().name")[1]
    assert "subshell" in reading.result(thread)


@pytest.mark.parametrize("code", ["%undo 2", "%policy narrow timeout=5.5"])
def test_what_needs_the_guest_for_itself_waits_for_subshells(kernel, subshell, code):
    kernel.run("import time\nx = 1")
    kernel.run("x = 2")
    beside = begin(kernel, subshell, "time.sleep(0.5)\nx = 3")
    waits = kernel.execute_send(code)
    assert kernel.recv("shell")["parent_header"]["msg_id"] == beside
    assert kernel.reply(waits)["content"]["status"] == "ok"
    assert reading.result(kernel.run("x")[1]) == ("1" if "undo" in code else "3")


@pytest.mark.parametrize("code", ["%policy narrow timeout=1", "%changes keep a"])
def test_cells_of_a_subshell_neither_narrow_the_policy_nor_keep_files(kernel, subshell, code):
    reply, _ = run(kernel, subshell, code)
    assert reply["ename"] == "SubshellRefused"
    assert "Run it there." in reply["evalue"]


def test_a_cell_of_a_subshell_neither_asks_nor_steps_back(kernel, subshell):
    assert run(kernel, subshell, "input()")[0]["ename"] == "StdinNotImplementedError"
    assert run(kernel, subshell, "1\n%undo")[0]["ename"] == "UsageError"


def test_no_more_subshells_than_ten_and_none_that_is_not_there(kernel):
    names = [made(kernel) for _ in range(10)]
    reply = kernel.ask("create_subshell_request", {}, "control")["content"]
    assert (reply["status"], reply["ename"]) == ("error", "TooManySubshells")
    for name in names:
        kernel.ask("delete_subshell_request", {"subshell_id": name}, "control")
    reply = kernel.ask("delete_subshell_request", {"subshell_id": names[0]}, "control")["content"]
    unknown = ("UnknownSubshellError", f"Unknown subshell_id {names[0]!r}")  # as under ipykernel
    assert (reply["status"], reply["ename"], reply["evalue"]) == ("error", *unknown)
    reply, published = run(kernel, names[0], "1")
    assert (reply["ename"], reply["evalue"]) == unknown
    assert reading.of(published, "error")


def test_where_the_user_is_asked_there_are_no_subshells(start, world):
    policy = world.policy('extends = "data"\napprovals = "prompt"\n')
    kernel = start(policy, world=world)
    assert kernel.ask("kernel_info_request", {})["content"]["supported_features"] == []
    reply = kernel.ask("create_subshell_request", {}, "control")["content"]
    assert reply["ename"] == "NotOffered"


def test_what_a_widget_tells_by_a_subshell_wakes_the_cell_that_awaits_it(kernel, subshell):
    slider = slider_in(kernel.run(f"{SLIDER}s")[1])
    kernel.run("import asyncio\ntold = asyncio.get_event_loop().create_future()")
    kernel.run("def tell(change):\n    time.sleep(0.2)\n    told.set_result(change.new)\n")
    kernel.run("s.observe(tell, 'value')")
    mid = begin(kernel, None, "print('got', await told)")
    moved = move(kernel, subshell, slider)
    assert kernel.reply(mid)["content"]["status"] == "ok"
    assert reading.stream(published(kernel, moved, mid)[mid]) == "got 7\n"
