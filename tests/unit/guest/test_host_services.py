"""Calls of tools in a guest: whoever waits reads, and everybody gets their own answer."""

import asyncio
import inspect
import socket
import threading
import time

import msgspec
import numpy as np
import pytest

from cellblock.guest import host_services
from cellblock.guest.channel import Channel
from cellblock.guest.host_services import Calls, ToolError, _Call
from cellblock.guest.loop import ChannelReaders, Driver
from cellblock.wire import frames, messages, values

decode = frames.Decoder(messages.FromGuest)
NOTHING = values.encode(([], {}), 100)


class Host:
    """The other end: answers calls in any order, with the id that they came under."""

    def __init__(self, sock):
        self.sock, self.splitter, self.heard = sock, frames.Splitter(), []

    def hear(self, count):
        """Wait until that many messages were heard in all; return the last."""
        self.sock.settimeout(30)
        try:
            while len(self.heard) < count:
                self.heard += map(decode, self.splitter.feed(self.sock.recv(1 << 16)))
        except TimeoutError:
            self.sock.shutdown(socket.SHUT_RDWR)  # so that no guest waits for an answer either
            raise
        return self.heard[count - 1]

    def say(self, message):
        self.sock.sendall(frames.encode(message))

    def answer(self, number, value=None, kind="", text=""):
        raw = msgspec.Raw(msgspec.msgpack.encode(value))
        self.say(messages.ToolResult(id=number, value=raw, kind=kind, message=text))


class Guest:
    """Channel, loop and calls of a guest, in this process."""

    def __init__(self, sock, most=100):
        self.channel = Channel(sock)
        self.driver = Driver(self.channel, ChannelReaders(self.channel))
        self.calls = Calls(self.channel, self.driver.readers, most)

    def block(self, tool="tool"):
        return self.calls.block(tool, NOTHING)


@pytest.fixture
def ends():
    # A loop that another test has left running in this thread would have these wait for ever.
    assert asyncio._get_running_loop() is None
    ours, theirs = socket.socketpair()
    guest, host = Guest(theirs), Host(ours)
    yield guest, host
    guest.driver.loop.close()
    asyncio.set_event_loop(None)
    ours.close()
    theirs.close()


def in_thread(action):
    """Run ``action`` in a thread; return a function that waits for its value."""
    box = []
    thread = threading.Thread(target=lambda: box.append(action()), daemon=True)
    thread.start()

    def ended():
        thread.join(30)
        (value,) = box
        return value

    return ended


def test_the_main_thread_hands_answers_on_while_it_waits_for_its_own(ends):
    guest, host = ends
    threads = in_thread(guest.block)
    first = host.hear(1).id

    def answers():
        mine = host.hear(2).id
        host.answer(first, "the thread's")
        host.answer(mine, "the main's")

    in_thread(answers)
    assert guest.block() == "the main's"
    assert threads() == "the thread's"


def test_threads_are_answered_while_the_main_thread_is_in_code_of_its_own(ends):
    guest, host = ends
    waiting = [in_thread(guest.block) for _ in range(8)]
    host.hear(8)
    for call in reversed(host.heard):
        host.answer(call.id, call.id)
    assert sorted(ended() for ended in waiting) == sorted(call.id for call in host.heard)


def test_a_request_that_a_thread_reads_is_kept_for_the_main_thread(ends):
    guest, host = ends
    ended = in_thread(guest.block)
    number = host.hear(1).id
    host.say(messages.Complete(id=5, code="a", cursor=1))
    host.answer(number, 1)
    assert ended() == 1
    assert guest.channel.recv().id == 5


def test_a_request_that_is_read_beside_an_answer_is_said_to_be_heard(ends):
    guest, host = ends
    cell = messages.Execute(id=9, source="1", raw="1", execution_count=1)

    def speak():
        number = host.hear(1).id
        host.say(cell)
        heard = host.hear(2)
        host.answer(number, 1)
        return heard

    spoken = in_thread(speak)
    assert guest.block() == 1
    assert spoken() == messages.Queued(id=9)
    assert guest.channel.recv() == cell


def test_a_request_is_heard_by_a_loop_that_turns_whoever_reads_it(ends):
    guest, host = ends

    task = asyncio.Task(guest.calls.wait("tool", NOTHING), loop=guest.driver.loop)
    ended = in_thread(guest.block)
    said = in_thread(lambda: (host.hear(2), host.say(messages.Input(id=3, value=""))))
    assert guest.driver.next_message().id == 3
    said()
    for heard in host.heard:
        host.answer(heard.id, "late")
    assert ended() == "late"
    assert guest.driver.loop.run_until_complete(task) == "late"


def test_a_loop_that_is_told_late_to_stop_runs_its_cell_to_the_end(ends):
    driver = ends[0].driver
    driver._turning = True
    in_thread(driver._message_read)()
    driver._turning = False
    assert driver.run(asyncio.sleep(0.01, "done")) == "done"


def test_a_loop_of_another_thread_is_answered(ends):
    guest, host = ends

    async def several():
        waits = (guest.calls.wait("tool", NOTHING) for _ in range(20))
        return await asyncio.gather(*waits)

    ended = in_thread(lambda: asyncio.run(several()))
    host.hear(20)
    for heard in reversed(host.heard):
        host.answer(heard.id, heard.id)
    assert ended() == [heard.id for heard in host.heard]


def test_what_is_cancelled_is_withdrawn_and_its_answer_dropped(ends):
    guest, host = ends

    with pytest.raises(TimeoutError):
        guest.driver.run(asyncio.wait_for(guest.calls.wait("tool", NOTHING), 0.01))
    call, withdrawn = host.hear(1), host.hear(2)
    assert withdrawn == messages.ToolWithdrawn(id=call.id)
    host.answer(call.id, "late")
    in_thread(lambda: host.answer(host.hear(3).id, "next"))
    assert guest.block() == "next"


def test_a_failure_says_what_failed_and_more_calls_than_there_may_be_are_not_sent(ends):
    guest, host = ends
    in_thread(lambda: host.answer(host.hear(1).id, None, "ValueError", "no"))
    with pytest.raises(ToolError, match=r"^tool: ValueError: no$") as failed:
        guest.block()
    error = failed.value
    assert (error.tool, error.kind, error.message) == ("tool", "ValueError", "no")

    guest, _ = ends
    with pytest.raises(ToolError, match="TooManyCalls"):
        Calls(guest.channel, guest.driver.readers, 0).block("tool", NOTHING)


def test_what_a_thread_has_read_for_the_main_thread_is_there_when_that_begins_to_wait(ends):
    guest, host = ends
    taken, late = threading.Event(), threading.Event()
    hand_on = guest.channel.on_result

    def slowly(said):
        taken.set()
        time.sleep(0.2)
        return hand_on(said)

    guest.channel.on_result = slowly
    ended = in_thread(guest.block)
    host.hear(1)
    mine = _Call("mine", lambda: None, values.decode)
    guest.calls._send(2, mine, NOTHING)
    host.answer(2)
    assert taken.wait(30)
    # Whatever comes would wake the main thread: nothing may have to.
    timer = threading.Timer(5, lambda: (late.set(), host.answer(3)))
    timer.start()
    guest.channel.wait(mine.due)
    timer.cancel()
    host.answer(1)
    ended()
    assert not late.is_set()


def test_a_thread_that_leaves_while_another_reads_costs_nobody_an_answer(ends):
    class Left(dict):
        """Of threads that wait: the one that was there a moment ago."""

        def __bool__(self):
            return True

    guest, host = ends
    guest.calls._followers = Left()
    ended = in_thread(guest.block)
    host.hear(1)
    host.answer(1, "mine")
    assert ended() == "mine"


def test_a_call_that_is_withdrawn_counts_until_the_host_has_been_told(ends):
    guest, host = ends
    guest.calls._most = 1
    send = guest.channel.send

    def call_meanwhile(message):
        if isinstance(message, messages.ToolWithdrawn):
            with pytest.raises(ToolError, match="TooManyCalls"):
                guest.calls._send(7, _Call("another", lambda: None, values.decode), NOTHING)
        send(message)

    guest.channel.send = call_meanwhile
    guest.calls._send(6, _Call("first", lambda: None, values.decode), NOTHING)
    guest.calls._end(6)
    guest.calls._send(8, _Call("second", lambda: None, values.decode), NOTHING)
    host.hear(3)
    kinds = [type(one) for one in host.heard]
    assert kinds == [messages.ToolCall, messages.ToolWithdrawn, messages.ToolCall]


def stub(**fields):
    parameters = (
        messages.Parameter(name="a", kind=1, annotation="int"),
        messages.Parameter(name="b", kind=3, annotation="Odd", default="..."),
        messages.Parameter(name="c", kind=3, default="'x'"),
    )
    tool = messages.Tool(name="tool", parameters=parameters, returns="Odd", doc="Does.", **fields)

    class Sink:
        def block(self, _tool, arguments):
            return values.decode(arguments)

    return host_services.build_tools((tool,), 1_000, Sink)["tool"]


def test_a_function_has_its_tools_signature_and_takes_numpys_numbers_as_pythons():
    function = stub()
    assert str(inspect.signature(function)) == "(a: int, *, b: Odd = ..., c='x') -> Odd"
    assert (function.__name__, function.__doc__) == ("tool", "Does.")

    given = stub()(np.int64(1), b=np.array([1.5]), c=[np.float64(2), np.bool_(True)])
    assert given == [[1], {"b": [1.5], "c": [2.0, True]}]


def test_the_argument_that_does_not_cross_is_named():
    with pytest.raises(TypeError, match=r"^tool\(\): argument 'a': object can't be passed"):
        stub()(object())
    with pytest.raises(TypeError, match=r"^tool\(\): argument 'b': "):
        stub()(1, b={1: 2})
    with pytest.raises(ValueError, match=r"^tool\(\): the arguments: it takes 1,004 bytes"):
        stub()("x" * 998)


def test_an_async_tool_is_awaited_in_a_loop_and_blocks_in_a_thread_without():
    function = stub(is_async=True)
    assert function(1) == [[1], {}]

    async def call():
        made = function(2)
        assert inspect.iscoroutine(made)
        made.close()

    asyncio.run(call())
