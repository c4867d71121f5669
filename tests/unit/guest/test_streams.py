"""stdout and stderr of the guest: batched, in order, never lost, never lone surrogates."""

import io
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from cellblock.guest import output
from cellblock.guest.output import BATCH, Outlet, out_stream


class Sink:
    """A channel that keeps what it is sent."""

    is_parents = False

    def __init__(self):
        self.sent = []
        self.arrived = threading.Event()

    def send(self, message):
        self.sent.append((message.name, message.text))
        self.arrived.set()


@pytest.fixture
def sink():
    return Sink()


@pytest.fixture
def streams(sink):
    outlet = Outlet(sink)
    return out_stream("stdout", 1, outlet), out_stream("stderr", 2, outlet)


def test_many_prints_leave_in_one_frame(streams, sink):
    out, _ = streams
    for n in range(1_000):
        print(n, file=out)
    out.flush()
    assert "".join(text for _, text in sink.sent) == "".join(f"{n}\n" for n in range(1_000))
    assert len(sink.sent) <= 3


def test_text_leaves_by_itself_within_a_moment(streams, sink):
    streams[0].write("soon")
    assert sink.arrived.wait(2)
    assert sink.sent == [("stdout", "soon")]


def test_the_order_of_both_streams_is_kept(streams, sink):
    out, err = streams
    out.write("a")
    err.write("b")
    out.write("c")
    out.flush()
    assert sink.sent == [("stdout", "a"), ("stderr", "b"), ("stdout", "c")]


def test_much_text_leaves_at_once_and_in_pieces(streams, sink):
    streams[0].write("x" * (BATCH * 9))
    assert sum(len(text) for _, text in sink.sent) == BATCH * 9
    assert max(len(text) for _, text in sink.sent) <= BATCH * 4


def test_lone_surrogates_are_escaped(streams, sink):
    streams[0].write("a\udc80b")
    streams[0].flush()
    assert sink.sent == [("stdout", "a\\udc80b")]


def test_the_buffer_takes_bytes_and_the_stream_only_text_and_says_what_it_is(streams, sink):
    out, _ = streams
    assert out.buffer.write("né".encode()) == 3
    out.writelines(["a", "b"])
    out.flush()
    assert "".join(text for _, text in sink.sent) == "néab"
    assert (out.encoding, out.fileno(), out.isatty(), out.writable()) == ("utf-8", 1, False, True)
    with pytest.raises(io.UnsupportedOperation):
        out.read()

    with pytest.raises(TypeError, match="must be str, not bytes"):
        streams[0].write(b"bytes")


def test_threads_lose_nothing(streams, sink):
    out, _ = streams

    def write(mark):
        for _ in range(500):
            out.write(mark)
            if mark == "a":
                time.sleep(0)

    with ThreadPoolExecutor(4) as threads:
        threads.map(write, "abcd")
    out.flush()
    text = "".join(text for _, text in sink.sent)
    assert {mark: text.count(mark) for mark in "abcd"} == dict.fromkeys("abcd", 500)


def test_where_no_thread_can_be_started_text_leaves_at_once(streams, sink, monkeypatch):
    def full(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(output, "start_new_thread", full)
    streams[0].write("a")
    streams[0].write("b")
    assert sink.sent == [("stdout", "a"), ("stdout", "b")]
    monkeypatch.undo()
    sink.arrived.clear()
    streams[0].write("c")
    assert sink.arrived.wait(2)
    assert sink.sent[2:] == [("stdout", "c")]


def test_what_a_thread_without_memory_kept_to_itself_holds_nobody_up(sink):
    outlet = Outlet(sink)
    held = []

    def end_without_a_handler():
        held.append(outlet.hold())
        held[0].__enter__()

    thread = threading.Thread(target=end_without_a_handler)
    thread.start()
    thread.join()
    outlet.add("stdout", "x")
    outlet.flush()
    assert sink.sent == [("stdout", "x")]
