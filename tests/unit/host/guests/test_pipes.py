"""A guest's stdout and stderr in one order: what marks say, and what is done without them."""

import fcntl
import itertools
import os
import threading

import pytest

from cellblock.host.guests import held_up, pipes
from cellblock.host.guests.pipes import CAPACITY, LATENCY, LINE_LATENCY, MOST_PIECES, Pipes
from cellblock.wire import marks
from cellblock.wire.marks import MESSAGE, PLAIN, TEXT
from support.simulator import Reactor

#: Then all that may be passed on was.
SOON = LATENCY + 2 * LINE_LATENCY


class Guest:
    """Who writes to the pipes; ``said`` is what the host passed on, with the messages among it."""

    def __init__(self):
        self.reactor, self.said, self.held_up = Reactor(), [], []
        self.pipes = Pipes(self.reactor, self.hear, lambda _seconds: None, self.held_up.append)
        self.out, self.err = self.pipes.child_fds

    def hear(self, text):
        where = (text.cell, text.subshell)
        self.said.append((text.name, text.text, *(where if any(where) else ())))

    def print(self, text, number=0, **whose):
        """Write to stdout, behind a mark where there is a number."""
        if number:
            os.write(self.err, marks.encode(PLAIN, number))
        os.write(self.out, (marks.encode(TEXT, number, **whose) if number else b"") + text)

    def warn(self, text, number):
        os.write(self.out, marks.encode(PLAIN, number))
        os.write(self.err, marks.encode(TEXT, number) + text)

    def mark(self, number, kind=MESSAGE):
        for fd in (self.out, self.err):
            os.write(fd, marks.encode(kind, number))

    def show(self, number):
        """Have the host take a message that belongs at a mark."""
        self.pipes.drain(before=number)
        self.said.append(number)
        self.pipes.passed(number)

    def end(self):
        self.pipes.drain_rest()
        return self.said

    def close(self):
        self.pipes.close()
        for fd in (self.out, self.err):
            os.close(fd)


@pytest.fixture
def guest():
    made = Guest()
    yield made
    made.close()


def test_text_is_collected_for_a_moment_and_passed_on_as_one(guest):
    guest.print(b"a")
    guest.reactor.turn()
    guest.print(b"b")
    assert guest.said == []
    guest.reactor.advance(SOON)
    assert guest.said == [("stdout", "ab")]


def test_a_flood_is_read_at_once_however_little_the_users_pipes_may_hold(monkeypatch):
    """Whose pipes hold much together gets small ones; then others of theirs made it slow."""
    made = os.pipe

    def small():
        ends = made()
        fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, 8 << 10)
        return ends

    with monkeypatch.context() as patched:
        patched.setattr(os, "pipe", small)
        guest = Guest()
    line = b"x" * 2048 + b"\n"  # two of it are all that such a pipe holds
    for number in range(1, 4):
        guest.print(2 * line)
        guest.reactor.advance(0 if guest.said else SOON)
        assert len(guest.said) == number
    guest.close()


def test_a_line_whose_end_comes_late_is_passed_on_as_one(guest):
    guest.print(b"Hello World")
    guest.reactor.advance(2 * LATENCY)
    guest.print(b"\n")
    guest.reactor.advance(SOON)
    assert guest.said == [("stdout", "Hello World\n")]


def test_a_line_without_an_end_is_passed_on_after_a_while(guest):
    guest.print(b"50 %")
    guest.reactor.advance(SOON)
    assert guest.said == [("stdout", "50 %")]


def test_the_beginning_of_a_line_is_not_forgotten_in_pipes_that_are_held(guest):
    guest.print(b"a")
    guest.reactor.advance(2 * LATENCY)
    guest.pipes.hold(held=True)
    guest.pipes.hold(held=False)
    guest.reactor.advance(SOON)
    assert guest.said == [("stdout", "a")]


@pytest.mark.parametrize("reads", [False, True])
def test_programs_and_python_stand_as_they_wrote(guest, reads):
    expected = []
    for number in range(1, 5):
        os.write(guest.err, b"program %d\n" % number)
        guest.print(b"print %d\n" % number, 2 * number)
        os.write(guest.out, b"child %d\n" % number)
        guest.warn(b"warn %d\n" % number, 2 * number + 1)
        expected += [
            ("stderr", f"program {number}\n"),
            ("stdout", f"print {number}\nchild {number}\n"),
            ("stderr", f"warn {number}\n"),
        ]
        if reads:
            guest.reactor.advance(SOON)
    said = guest.end()
    assert "".join(text for _, text in said) == "".join(text for _, text in expected)
    names = [name for name, text in said for _ in text.splitlines()]
    assert names == [name for name, text in expected for _ in text.splitlines()]


def test_a_message_stands_where_its_mark_is(guest):
    guest.print(b"a")
    guest.mark(1)
    guest.print(b"b")
    guest.mark(2)
    guest.print(b"c")
    guest.reactor.advance(1)
    assert guest.said == [("stdout", "a")]
    guest.show(1)
    guest.show(2)
    guest.reactor.advance(SOON)
    assert guest.said == [("stdout", "a"), 1, ("stdout", "b"), 2, ("stdout", "c")]


def test_what_was_written_before_a_message_is_all_there_however_much_waits(guest):
    for number in range(1, 4):
        guest.print(b"x" * (CAPACITY // 4))
        guest.mark(number)
    guest.reactor.advance(SOON)
    os.write(guest.out, b"y" * (CAPACITY - 100))
    guest.reactor.advance(1)
    guest.show(1)
    guest.show(2)
    guest.show(3)
    quarter = ("stdout", "x" * (CAPACITY // 4))
    assert guest.said == [quarter, 1, quarter, 2, quarter, 3]
    assert guest.end()[6:] == [("stdout", "y" * (CAPACITY - 100))]


def test_text_says_whose_it_is(guest):
    guest.print(b"a" + marks.END + b"b", 1, cell=3, subshell=2)
    assert guest.end() == [("stdout", "a", 3, 2), ("stdout", "b")]


def test_a_mark_whose_like_is_lost_holds_up_until_the_next(guest):
    os.write(guest.err, marks.encode(PLAIN, 1) + b"late\n")
    guest.reactor.advance(1)
    assert guest.said == []
    guest.print(b"next\n", 2)
    guest.reactor.advance(SOON)
    assert sorted(guest.said) == [("stderr", "late\n"), ("stdout", "next\n")]


def test_a_message_that_never_comes_holds_up_until_the_next(guest):
    guest.mark(1)
    guest.print(b"a")
    guest.mark(2)
    guest.reactor.advance(1)
    assert guest.said == []
    guest.show(2)
    assert guest.said == [("stdout", "a"), 2]


def test_who_waits_for_room_is_not_held_up_by_a_mark(guest):
    os.write(guest.out, marks.encode(MESSAGE, 1 << 40))
    for _ in range(10):  # none of these waits
        os.write(guest.out, b"x" * (CAPACITY // 2))
        guest.reactor.advance(SOON)
    assert sum(len(text) for _, text in guest.said) == 5 * CAPACITY


def test_marks_come_in_no_order_at_all(guest):
    for number in (9, 3, 1 << 63, 4):
        os.write(guest.out, marks.encode(number % 4, number) + b"a")
        os.write(guest.err, marks.encode(number % 5, number // 2) + b"b")
    said = guest.end()
    text = "".join(text for _, text in said)
    assert (text.count("a"), text.count("b"), len(text)) == (4, 4, 8)


@pytest.mark.parametrize("cut", range(1, marks.SIZE))
def test_a_mark_that_a_read_cuts_in_two_is_one(guest, cut):
    mark = marks.encode(TEXT, 1, cell=5)
    os.write(guest.err, marks.encode(PLAIN, 1))
    os.write(guest.out, b"a" + mark[:cut])
    guest.reactor.advance(SOON)
    assert guest.said == [("stdout", "a")]
    os.write(guest.out, mark[cut:] + b"b")
    guest.reactor.advance(SOON)
    assert guest.said == [("stdout", "a"), ("stdout", "b", 5, 0)]


def test_what_only_begins_like_a_mark_is_text(guest):
    os.write(guest.out, b"a" + marks.MAGIC[:3])
    os.write(guest.out, b"b" + marks.MAGIC[:4])
    os.close(guest.out)
    guest.out = os.open(os.devnull, os.O_WRONLY)
    guest.reactor.advance(SOON)
    guest.reactor.advance(SOON)
    text = "".join(text for _, text in guest.end())
    assert text.replace("\ufffd", "") == "ab"


@pytest.mark.parametrize("text", ["\u6f22", "\u00e9"])
def test_a_letter_that_a_read_cuts_in_two_is_passed_on_whole(guest, text):
    for cut in range(1, len(text.encode())):
        guest.said.clear()
        for part in (text.encode()[:cut], text.encode()[cut:]):
            os.write(guest.out, part)
            guest.reactor.advance(SOON)
        assert guest.said == [("stdout", text)]


def test_held_pipes_are_left_alone_and_read_on_then(guest):
    guest.pipes.hold(held=True)
    guest.print(b"a")
    guest.reactor.advance(1)
    assert guest.said == []
    guest.pipes.hold(held=False)
    guest.reactor.advance(SOON)
    assert guest.said == [("stdout", "a")]


def test_who_hears_the_first_text_may_end_the_guest(guest):
    def end(text):
        guest.said.append(text.text)
        guest.pipes.drain_rest()
        guest.pipes.close()

    guest.pipes._on_text = end
    guest.print(b"a", 1)
    guest.warn(b"b", 2)
    guest.pipes.drain()
    assert guest.said == ["a", "b"]


def test_much_text_is_read_on_at_once_and_the_pipe_enlarged(guest):
    guest.print(b"x" * CAPACITY)
    guest.reactor.advance(SOON)
    os.set_blocking(guest.out, False)
    assert os.write(guest.out, b"x" * 2 * CAPACITY) == 2 * CAPACITY
    guest.reactor.turn()
    assert sum(len(text) for _, text in guest.said) == 3 * CAPACITY


def test_a_pipe_that_could_not_be_made_leaves_no_descriptor(monkeypatch, descriptors):
    before, made = descriptors(), []

    def one_and_no_more():
        if made:
            raise OSError("no more")
        made.append(real())
        return made[0]

    real = os.pipe
    monkeypatch.setattr(pipes.os, "pipe", one_and_no_more)
    with pytest.raises(OSError, match="no more"):
        Pipes(Reactor(), print, print, print)
    assert descriptors() == before


def test_a_read_that_a_writer_holds_up_has_the_writers_ended_and_the_user_told(guest, monkeypatch):
    """A write holds the lock of its pipe while the memory that it copies from can't be had."""
    monkeypatch.setattr(held_up, "LOOK", 0.01)
    ended = threading.Event()

    def end(times):
        guest.held_up.append(times)
        if times == 2:
            ended.set()

    def read(fd, size, *, real=os.read):
        ended.wait()
        return real(fd, size)

    guest.pipes._on_held_up = end
    guest.print(b"x\n")
    with monkeypatch.context() as held:
        held.setattr(pipes.os, "read", read)
        guest.pipes.drain()
    assert guest.held_up[:2] == [1, 2]
    assert [text for _, text, *_ in guest.said] == ["x\n", pipes._HELD_UP]


def test_reads_that_are_not_held_up_end_nothing(guest, monkeypatch):
    monkeypatch.setattr(held_up, "LOOK", 0.001)
    for _ in range(300):
        guest.print(b"x")
        guest.pipes.drain()
        held_up.time.sleep(0.001)
    assert guest.held_up == []


def test_a_flood_of_marks_takes_many_turns_and_nothing_of_it_is_lost(guest):
    number = 0
    while number < 3 * MOST_PIECES:
        for write in (guest.print, guest.warn):
            number += 1
            write(b"a", number)
    handed = [0]
    while handed[-1] < number:
        guest.reactor.advance(SOON / 30)
        handed.append(len(guest.said))
    assert max(b - a for a, b in itertools.pairwise(handed)) <= MOST_PIECES + 2
    assert len(guest.said) == number
