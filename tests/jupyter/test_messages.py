"""Every message on every channel is valid, in order, and has the right parent."""

import time

import IPython
import pytest
import zmq

from support import reading
from support.client import Client, is_idle
from support.kernels import Kernel, argv_changed, argv_for

REQUESTS = {
    "kernel_info_request": {},
    "complete_request": {"code": "pri", "cursor_pos": 3},
    "inspect_request": {"code": "print", "cursor_pos": 5, "detail_level": 0},
    "is_complete_request": {"code": "for x in y:"},
    "history_request": {"output": False, "raw": True, "hist_access_type": "tail", "n": 5},
    "comm_info_request": {},
}


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_query_is_answered_between_busy_and_idle(safe, kind):
    mid = safe.send(kind, REQUESTS[kind])
    reply, published = safe.reply(mid), safe.until_idle(mid)
    reading.validate(reply)
    assert reply["msg_type"] == kind.replace("_request", "_reply")
    assert reply["content"]["status"] in {"ok", "incomplete"}
    assert [m["content"]["execution_state"] for m in published] == ["busy", "idle"]
    for msg in published:
        reading.validate(msg)
        assert msg["parent_header"]["msg_type"] == kind
        assert msg["parent_header"]["session"] == safe.session.session


CELL = """
from IPython.display import clear_output
import sys
print("out")
print("err", file=sys.stderr)
handle = display("one", display_id="d")
handle.update("two")
clear_output(wait=True)
6 * 7
"""
ORDER = [
    "stream",
    "stream",
    "display_data",
    "update_display_data",
    "clear_output",
    "execute_result",
]


@pytest.mark.quick
def test_a_cell_publishes_busy_input_outputs_and_idle_in_the_order_they_happened(unsafe):
    unsafe.run("1")  # a session's first visible cell may show gaps
    mid = unsafe.execute_send(CELL)
    reply, published = unsafe.reply(mid), unsafe.until_idle(mid)
    assert [m["msg_type"] for m in published[:2]] == ["status", "execute_input"]
    assert reading.kinds(published) == ORDER
    for msg in (reply, *published):
        reading.validate(msg)
        assert msg["parent_header"]["msg_id"] == mid
        assert msg["header"]["session"] == reply["header"]["session"]
    count = reply["content"]["execution_count"]
    assert published[1]["content"] == {"code": CELL, "execution_count": count}
    assert reading.of(published, "execute_result")[0]["execution_count"] == count
    assert reading.of(published, "clear_output") == [{"wait": True}]


def test_topics_tell_subscribers_what_a_message_is(safe):
    mid = safe.execute_send("print(1)")
    safe.reply(mid)
    topics = []
    while True:
        frames = safe.iopub.recv_multipart()
        msg = safe.session.deserialize(safe.session.feed_identities(frames)[1])
        topics.append((frames[0].decode(), msg["msg_type"]))
        if is_idle(msg):
            break
    assert all(topic.endswith(kind) for topic, kind in topics)


@pytest.mark.parametrize("code", ["1/0", "import gc", "raise SystemExit", "def"])
def test_a_failure_is_said_on_iopub_and_in_the_reply(safe, code):
    mid = safe.execute_send(code)
    reply, published = safe.reply(mid), safe.until_idle(mid)
    for msg in (reply, *published):
        reading.validate(msg)
    (error,) = reading.of(published, "error")
    assert reply["content"]["status"] == "error"
    assert reply["content"]["ename"] == error["ename"]
    assert reply["content"]["evalue"] == error["evalue"]


def test_a_subscriber_is_greeted_and_told_that_the_kernel_starts():
    with Kernel(argv_for("safe")) as kernel:
        first = kernel.recv("iopub")
        assert first["msg_type"] == "iopub_welcome"
        assert first["content"] == {"subscription": ""}
        second = kernel.recv("iopub")
        assert second["content"] == {"execution_state": "starting"}
        assert second["parent_header"] == {}
        reading.validate(first)
        reading.validate(second)
        with Client(kernel.info) as late:
            assert late.recv("iopub")["msg_type"] == "iopub_welcome"


@pytest.fixture
def unheard():
    """A kernel that nobody has subscribed to."""
    with Kernel(argv_for("safe")) as kernel:
        kernel.iopub.close()
        yield kernel


def test_a_first_cell_waits_for_whoever_subscribes_a_moment_later(unheard):
    mid = unheard.execute_send("print('heard')")
    info = unheard.send("kernel_info_request", {}, "control")
    unheard.reply(info, "control")
    time.sleep(0.1)
    unheard.iopub = unheard.connect(zmq.SUB, "iopub")
    unheard.iopub.subscribe(b"")
    assert unheard.reply(mid)["content"]["status"] == "ok"
    assert reading.stream(unheard.until_idle(mid)) == "heard\n"


def test_a_first_cell_runs_though_nobody_subscribes(unheard):
    assert unheard.reply(unheard.execute_send("1"))["content"]["status"] == "ok"


@pytest.mark.quick
def test_two_front_ends_each_get_their_own_replies_and_all_of_the_output(safe):
    with Client(safe.info) as other:
        assert other.recv("iopub")["msg_type"] == "iopub_welcome"
        mine = safe.execute_send("print('mine')")
        safe.reply(mine)
        theirs = other.execute_send("print('theirs')")
        assert other.reply(theirs)["content"]["status"] == "ok"
        assert reading.stream(other.until_idle(mine)) == "mine\n"
        assert reading.stream(safe.until_idle(theirs)) == "theirs\n"


@pytest.mark.quick
def test_an_error_aborts_the_cells_queued_behind_it(safe):
    first = safe.execute_send("1/0", stop_on_error=True)
    second = safe.execute_send("print('never')")
    assert safe.reply(first)["content"]["status"] == "error"
    aborted = safe.reply(second)
    reading.validate(aborted)
    assert aborted["content"]["status"] == "aborted"
    assert "stream" not in reading.kinds(safe.until_idle(second))
    assert safe.run("1")[0]["status"] == "ok"


def in_notebook(kernel, code, cell, **extra):
    content = {"code": code, "silent": False, "store_history": True, "stop_on_error": True}
    return kernel.send("execute_request", content | extra, metadata={"cellId": cell})


def test_a_cell_of_the_same_run_that_arrives_after_the_error_is_aborted(safe):
    failed = in_notebook(safe, "import gc", "a")
    assert safe.reply(failed)["content"]["status"] == "error"
    for cell in ("b", "c"):
        late = in_notebook(safe, "print('never')", cell)
        assert safe.reply(late)["content"]["status"] == "aborted"
        assert "stream" not in reading.kinds(safe.until_idle(late))


@pytest.mark.parametrize(
    ("cell", "wait", "extra"),
    [("a", 0.0, {}), ("b", 0.25, {}), (None, 0.0, {}), ("b", 0.0, {"stop_on_error": False})],
    ids=["the same cell", "later", "no notebook", "told not to stop"],
)
def test_a_cell_that_is_run_for_the_error_runs(safe, cell, wait, extra):
    safe.reply(in_notebook(safe, "import gc", "a"))
    time.sleep(wait)
    if cell is None:
        assert safe.run("1", stop_on_error=True)[0]["status"] == "ok"
    else:
        assert safe.reply(in_notebook(safe, "1", cell, **extra))["content"]["status"] == "ok"


def test_a_cell_sent_by_who_has_read_the_error_runs_however_slow_the_host_is(start):
    slow = (
        "import time; from cellblock.jupyter.channels import Channels; reply = Channels.reply; "
        "Channels.reply = lambda *a, **k: (reply(*a, **k), time.sleep(0.1))"
    )
    kernel = start(argv=argv_changed(slow, "safe"))
    kernel.reply(kernel.execute_send("1/0", stop_on_error=True))
    assert kernel.reply(kernel.execute_send("1"))["content"]["status"] == "ok"


def test_without_stop_on_error_the_next_cell_runs(safe):
    first = safe.execute_send("1/0", stop_on_error=False)
    second = safe.execute_send("print('ran')")
    assert safe.reply(first)["content"]["status"] == "error"
    assert safe.reply(second)["content"]["status"] == "ok"
    assert reading.stream(safe.until_idle(second)) == "ran\n"


@pytest.mark.quick
def test_a_forged_message_is_dropped_unanswered(safe):
    with Client(safe.info | {"key": "0" * 32}) as forger:
        forger.execute_send("print('forged')")
        forger.send("shutdown_request", {"restart": False}, "control")
        assert not forger.shell.poll(200)
        assert not forger.control.poll(0)
    reply, published = safe.run("print('real')")
    assert reply["status"] == "ok"
    assert reading.stream(published) == "real\n"


def test_a_replayed_message_is_dropped(safe):
    msg = safe.session.msg("execute_request", {"code": "print('once')"})
    frames = safe.session.serialize(msg)
    safe.shell.send_multipart(frames)
    safe.reply(msg["header"]["msg_id"])
    assert reading.stream(safe.until_idle(msg["header"]["msg_id"])) == "once\n"
    safe.shell.send_multipart(frames)
    _, published = safe.run("print('next')")
    assert [c["text"] for _, m in safe.log[-len(published) :] for c in reading.of([m], "stream")]
    assert sum(reading.stream([m]) == "once\n" for _, m in safe.log) == 1


@pytest.mark.parametrize(
    "kind",
    ["execute_request", "complete_request", "inspect_request", "debug_request", "history_request"],
)
def test_the_control_channel_takes_no_cell_and_no_query(safe, kind):
    content = {"code": "print('through the back door')", "cursor_pos": 0, "silent": False}
    reply = safe.ask(kind, content, "control")
    assert reply["content"]["status"] == "error"
    assert reply["content"]["ename"] == "NotOffered"


def test_an_interrupt_does_not_say_that_the_running_cell_is_idle(unsafe):
    mid = unsafe.execute_send("print('go', flush=True)\nwhile True: pass")
    unsafe.until(lambda m: m["msg_type"] == "stream", mid)
    request = unsafe.interrupt()
    reading.validate(unsafe.reply(request, "control"))
    unsafe.reply(mid)
    published = unsafe.until_idle(mid)
    parents = {m["parent_header"]["msg_id"] for _, m in unsafe.log if m in published}
    assert parents == {mid}
    assert not [m for _, m in unsafe.log if m["parent_header"].get("msg_id") == request][1:]


def test_a_connect_request_is_answered_with_the_ports(safe):
    reading.validate(safe.ask("connect_request", {}, "shell"))


def test_neither_a_debugger_nor_anything_unknown_is_offered(safe):
    for channel in ("shell", "control"):
        info = safe.ask("kernel_info_request", {}, channel)["content"]
        assert (info["implementation"], info["debugger"]) == ("ipython", False)
        assert info["implementation_version"] == IPython.__version__
        assert info["supported_features"] == ["kernel subshells"]
    for kind, channel in (("create_subshell_request", "shell"), ("make_coffee_request", "control")):
        reply = safe.ask(kind, {}, channel)["content"]
        assert (reply["status"], reply["ename"]) == ("error", "NotOffered")
    safe.send("make_coffee", {})  # no request: nothing answers
    assert safe.run("1")[0]["status"] == "ok"


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"code": None, "silent": "yes", "user_expressions": 7},
        {"code": ["a"], "user_expressions": {"a": []}},
    ],
)
def test_odd_contents_cost_a_reply_and_nothing_else(safe, content):
    mid = safe.send("execute_request", content)
    assert safe.reply(mid)["content"]["status"] in {"ok", "error"}
    safe.until_idle(mid)
    assert safe.run("1")[0]["status"] == "ok"


def test_frames_that_are_no_message_are_dropped(safe):
    for frames in (
        [b""],
        [b"<IDS|MSG>"],
        [b"<IDS|MSG>", b"", b"{", b"{}", b"{}", b"{}"],
        [b"x"] * 9,
    ):
        safe.shell.send_multipart(frames)
        safe.control.send_multipart(frames)
        safe.stdin.send_multipart(frames)
    assert safe.run("1")[0]["status"] == "ok"


@pytest.mark.quick
def test_the_heartbeat_answers_while_a_cell_runs(unsafe):
    beat = unsafe.connect(zmq.REQ, "hb")
    mid = unsafe.execute_send("print('go', flush=True)\nwhile True: pass")
    unsafe.until(lambda m: m["msg_type"] == "stream", mid)
    beat.send(b"ping")
    assert beat.poll(1_000)
    assert beat.recv() == b"ping"
    beat.close()
    unsafe.interrupt()
    assert unsafe.reply(mid)["content"]["ename"] == "KeyboardInterrupt"
    unsafe.until_idle(mid)


ECHO = """
import comm
def opened(c, msg):
    print("opened")
    c.on_msg(lambda m: c.send({'echo': m['content']['data']}, buffers=m['buffers']))
comm.get_comm_manager().register_target('echo', opened)
"""


@pytest.mark.quick
def test_comms_open_answer_and_close(start, world):
    kernel = start(world.policy("mode = 'unsafe'\ncomm_targets = ['echo']"), "--allow-unsafe")
    kernel.run(ECHO)
    opened = kernel.send("comm_open", {"comm_id": "c1", "target_name": "echo", "data": {}})
    assert reading.stream(kernel.until_idle(opened)) == "opened\n"
    listed = kernel.ask("comm_info_request", {"target_name": "echo"})
    reading.validate(listed)
    assert listed["content"]["comms"] == {"c1": {"target_name": "echo"}}
    mid = kernel.send("comm_msg", {"comm_id": "c1", "data": {"a": 1}}, buffers=[b"bytes"])
    published = kernel.until_idle(mid)
    (answer,) = [m for m in published if m["msg_type"] == "comm_msg"]
    reading.validate(answer)
    assert answer["content"]["data"] == {"echo": {"a": 1}}
    assert [bytes(b) for b in answer["buffers"]] == [b"bytes"]
    kernel.until_idle(kernel.send("comm_close", {"comm_id": "c1", "data": {}}))
    assert kernel.ask("comm_info_request", {})["content"]["comms"] == {}


def test_a_comm_to_a_target_that_the_policy_does_not_name_is_closed_at_once(unsafe):
    unsafe.run(ECHO)
    opened = unsafe.send("comm_open", {"comm_id": "c1", "target_name": "echo", "data": {}})
    published = unsafe.until_idle(opened)
    assert reading.of(published, "comm_close") == [{"comm_id": "c1", "data": {}}]
    assert reading.stream(published) == ""
    mid = unsafe.send("comm_msg", {"comm_id": "c1", "data": {"a": 1}})
    assert reading.kinds(unsafe.until_idle(mid)) == []
    assert unsafe.ask("comm_info_request", {})["content"]["comms"] == {}
