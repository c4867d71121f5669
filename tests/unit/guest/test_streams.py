"""stdout and stderr of the guest: written at once, marked where the order shows in no pipe."""

import io
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import pytest

from cellblock.guest import output
from cellblock.guest.output import Outlet, current_cell, current_subshell, out_stream
from cellblock.wire import marks, messages


class Channel:
    """A channel that keeps what it is sent."""

    is_parents = False

    def __init__(self):
        self.sent = []

    def send(self, message):
        self.sent.append(message)


class Written:
    """What an outlet has written, in pipes of the test's."""

    def __init__(self, outlet):
        self._ends = {}
        for name in ("stdout", "stderr"):
            read, write = os.pipe()
            os.set_blocking(read, False)
            for fd in (outlet._own[name], outlet._filenos[name]):
                os.dup2(write, fd)
            os.close(write)
            self._ends[name] = read

    def raw(self, name):
        """Return the bytes that are new in a pipe."""
        found = b""
        while True:
            try:
                data = os.read(self._ends[name], 1 << 16)
            except BlockingIOError:
                return found
            found += data

    def take(self, name):
        """Return the new text of a pipe, and the marks between, as kind, number, cell, subshell."""
        first, *rest = self.raw(name).split(marks.MAGIC)
        found = [first.decode()]
        for part in rest:
            mark = marks.decode(marks.MAGIC + part, 0)
            found += [
                (mark.kind, mark.number, mark.cell, mark.subshell),
                part[marks.SIZE - len(marks.MAGIC) :].decode(),
            ]
        return [each for each in found if each]

    def close(self):
        for fd in self._ends.values():
            os.close(fd)


@pytest.fixture
def channel():
    return Channel()


@pytest.fixture
def outlet(channel):
    made = Outlet(channel)
    yield made
    for fd in (*made._own.values(), *made._filenos.values()):
        os.close(fd)


@pytest.fixture
def written(outlet):
    made = Written(outlet)
    yield made
    made.close()


@pytest.fixture
def streams(written, outlet):
    assert written  # its pipes are in place
    return out_stream("stdout", outlet), out_stream("stderr", outlet)


def test_text_is_in_the_pipe_when_print_returns(streams, written):
    streams[0].write("soon")
    assert written.take("stdout") == ["soon"]
    print("now", file=streams[0])
    assert written.take("stdout") == ["now\n"]
    assert written.take("stderr") == []


def test_the_order_of_both_streams_is_in_marks(streams, written):
    out, err = streams
    out.write("a")
    err.write("b")
    err.write("b")
    out.write("c")
    assert written.take("stdout") == ["a", (marks.PLAIN, 1, 0, 0), (marks.TEXT, 2, 0, 0), "c"]
    assert written.take("stderr") == [(marks.TEXT, 1, 0, 0), "bb", (marks.PLAIN, 2, 0, 0)]


def test_what_is_shown_has_its_place_in_both_pipes(streams, written, outlet, channel):
    streams[0].write("a")
    outlet.send(messages.Clear())
    outlet.send(messages.Completed(id=1, matches=[], start=0, end=0))  # nobody sees that
    assert [getattr(message, "mark", None) for message in channel.sent] == [1, None]
    assert written.take("stdout") == ["a", (marks.MESSAGE, 1, 0, 0)]
    assert written.take("stderr") == [(marks.MESSAGE, 1, 0, 0)]


def test_where_a_program_may_write_too_text_has_its_place_in_both_pipes(
    streams, written, outlet, monkeypatch
):
    children = [True]
    monkeypatch.setattr(output, "_has_children", lambda: children[0])
    streams[0].write("a")
    outlet.program_starts()
    streams[0].write("b")
    outlet.begin(2)
    streams[0].write("c")
    expected = ["a", (0, 1, 0, 0), (1, 2, 0, 0), "b", (1, 3, 0, 0), "c"]
    assert written.take("stdout") == expected
    assert written.take("stderr") == [(0, 1, 0, 0), (0, 2, 0, 0), (0, 3, 0, 0)]
    children[0] = False
    outlet.begin(3)
    streams[0].write("d")
    assert written.take("stdout") == ["d"]


@pytest.mark.parametrize(
    ("cell", "subshell", "marked"), [(0, 0, False), (7, 0, False), (6, 0, True), (7, 2, True)]
)
def test_text_of_another_cell_or_subshell_says_whose_it_is(
    streams, written, outlet, cell, subshell, marked
):
    outlet.begin(7)

    def write():
        current_cell.set(cell)
        current_subshell.set(subshell)
        streams[0].write("a")

    copy_context().run(write)
    streams[0].write("b")
    found = written.take("stdout")
    assert found == ([(1, 1, cell, subshell), "a", (0, 0, 0, 0), "b"] if marked else ["ab"])


def test_lone_surrogates_are_escaped(streams, written):
    streams[0].write("a\udc80b")
    assert written.take("stdout") == ["a\\udc80b"]


def test_the_buffer_takes_bytes_and_the_stream_only_text_and_says_what_it_is(streams, written):
    out = streams[0]
    assert out.buffer.write("né".encode()) == 3
    out.writelines(["a", "b"])
    out.flush()
    assert written.take("stdout") == ["néab"]
    assert (out.encoding, out.isatty(), out.writable()) == ("UTF-8", False, True)
    with pytest.raises(io.UnsupportedOperation):
        out.read()

    with pytest.raises(TypeError, match="must be str, not bytes"):
        streams[0].write(b"bytes")


def test_the_descriptor_of_a_stream_is_of_its_pipe_and_not_the_one_of_c_code(streams, written):
    out, err = streams
    assert {out.fileno(), err.fileno()}.isdisjoint({0, 1, 2})
    os.write(out.fileno(), b"out")
    os.write(err.fileno(), b"err")
    assert (written.take("stdout"), written.take("stderr")) == (["out"], ["err"])
    os.dup2(err.fileno(), out.fileno())  # as programs do that catch what is printed
    out.write("still here")
    assert written.take("stdout") == ["still here"]


def test_threads_lose_nothing(streams, written):
    out, _ = streams

    def write(mark):
        for _ in range(500):
            out.write(mark)

    with ThreadPoolExecutor(4) as threads:
        threads.map(write, "abcd")
    text = "".join(written.take("stdout"))
    assert {mark: text.count(mark) for mark in "abcd"} == dict.fromkeys("abcd", 500)


def test_more_than_a_pipe_holds_waits_for_who_reads(streams, written):
    size, text = 1 << 18, b""
    thread = threading.Thread(target=lambda: streams[0].write("x" * size))
    thread.start()
    while len(text) < size:
        text += written.raw("stdout")
    thread.join()
    assert text == b"x" * size


def test_a_process_that_a_cell_forked_writes_whole_lines_to_its_own_stdout(
    outlet, channel, monkeypatch
):
    wrote = []
    monkeypatch.setattr(output, "_write", lambda fd, data: wrote.append((fd, data)) or len(data))
    channel.is_parents = True
    out, err = out_stream("stdout", outlet), out_stream("stderr", outlet)
    for text in ("a", "b\nc", "d"):
        out.write(text)
    err.write("e\n")
    assert wrote == [(1, b"ab\n"), (2, b"e\n")]
    out.flush()
    assert wrote[2:] == [(1, b"cd")]
    outlet.send(messages.Display(data={"text/plain": "shown"}))
    assert wrote[3:] == [(1, b"shown\n")]
    assert channel.sent == []


def test_a_thread_of_a_cell_that_has_ended_says_so_and_one_of_a_pool_does_not(
    streams, written, outlet
):
    go = threading.Event()

    def of_a_library():
        go.wait(60)
        streams[0].write("pool")

    def of_a_cell():
        pool.join()
        streams[0].write("cell")

    of_a_cell.__module__ = "__main__"
    pool, cell = (threading.Thread(target=target) for target in (of_a_library, of_a_cell))
    for one in (pool, cell):
        one.start()
    outlet.cell_ended()
    outlet.begin(2)
    go.set()
    cell.join()
    streams[0].write("now")
    late, end = (marks.LATE, 1, 0, 0), (marks.PLAIN, 0, 0, 0)
    assert written.take("stdout") == ["pool", late, "cell", end, "now"]
