"""Calls in a worker: each is answered once, whenever it is cancelled."""

import queue
import threading

import msgspec
import pytest

from cellblock.host.services.tools import registry, worker
from cellblock.host.services.tools.runner import CallRunner

#: Seconds that an answer may take here.
SOON = 20.0


@pytest.fixture
def door():
    made = threading.Event()
    yield made
    made.set()


@pytest.fixture
def said():
    return queue.Queue()


@pytest.fixture
def stalled():
    return threading.Event()


@pytest.fixture
def runs(door, said, stalled):
    def wait() -> None:
        door.wait(SOON)

    async def stall() -> None:
        stalled.set()
        door.wait(SOON)

    async def fetch() -> str:
        return "fetched"

    functions = {"wait": wait, "stall": stall, "fetch": fetch}
    tools = registry.register((name, name, function) for name, function in functions.items())
    return CallRunner(tools, said.put, threads=1, max_bytes=1_000)


def begin(runs, number, tool, args=()):
    encoded = msgspec.Raw(msgspec.msgpack.encode((args, {})))
    runs.begin(worker.Begin(number=number, tool=tool, arguments=encoded))


def answers(said, count):
    heard = [said.get(timeout=SOON) for _ in range(count)]
    assert said.empty()
    return sorted((one.number, one.answer.kind) for one in heard)


def test_a_call_that_is_cancelled_before_a_thread_is_free_is_answered_at_once(runs, said, door):
    for number in (1, 2):
        begin(runs, number, "wait")
    runs.cancel(2)
    runs.cancel(2)
    assert answers(said, 1) == [(2, "Cancelled")]
    door.set()
    assert answers(said, 1) == [(1, "")]
    begin(runs, 4, "wait")
    assert answers(said, 1) == [(4, "")]


def test_a_call_that_is_cancelled_before_its_first_step_is_answered(runs, said, door, stalled):
    begin(runs, 1, "stall")
    assert stalled.wait(SOON)
    begin(runs, 2, "fetch")
    runs.cancel(2)
    begin(runs, 3, "fetch")
    door.set()
    assert answers(said, 3) == [(1, ""), (2, "CancelledError"), (3, "")]


@pytest.mark.parametrize("tool", ["wait", "fetch"])
def test_an_extension_of_msgpack_reaches_no_tool(runs, said, tool):
    begin(runs, 1, tool, [msgspec.msgpack.Ext(9, b"anything")])
    assert answers(said, 1) == [(1, "ValueError")]
