"""The host's end of a guest's stdout and stderr: text in the order in which it was written.

Marks (``wire.marks``) say what of one pipe came before what of the other, and before which message
on the channel. A mark is passed when the other pipe has come to it, too, or the message that it
stands for is there. That is known to come, as the guest wrote the other one first, so nothing is
waited for by the clock; where it is lost all the same, the next mark or a full pipe goes past it.
"""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
from collections import deque
from time import thread_time
from typing import TYPE_CHECKING, Final

from cellblock.host.guests.held_up import watch
from cellblock.wire import marks
from cellblock.wire.messages import Stream, StreamName

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.reactor import Reactor, Timer


#: What a pipe holds (pipe(7)), and what one is given to hold when it was full, as far as the user
#: may have that much: whose pipes hold much together gets such that hold 8 KiB, and may enlarge
#: none. A cell can't enlarge one either.
CAPACITY: Final = 1 << 16
_ENLARGED: Final = 1 << 18
#: Seconds that text waits for more of it, below what a reader notices. A message that is shown, and
#: a cell's end, have it read at once.
LATENCY: Final = 0.01
#: The same for text that ends inside a line: ``print`` writes the end of a line by itself, and on a
#: busy machine that comes later. A line in two messages is two outputs in a notebook that nbclient
#: has run.
LINE_LATENCY: Final = 0.1
#: Pieces of text, each from between two marks, that are passed on in one turn of the loop: some
#: 10 ms. A pipe may hold 20,000, and others wait meanwhile.
MOST_PIECES: Final = 500
#: A number that no mark has.
_END: Final = 1 << 64

#: What the user reads if a read was held up (``held_up``).
_HELD_UP: Final = (
    "[cellblock ended what this cell had started: it kept the host from reading the output]\n"
)

#: Whose text it is: stream, cell, subshell, and whether an earlier cell's thread wrote it.
_Source = tuple[StreamName, int, int, bool]


class _Pipe:
    """One pipe: what was read of it and not passed on yet, and the mark that it stands before."""

    def __init__(self, name: StreamName, fd: int) -> None:
        self.fd = fd
        self.mark: marks.Mark | None = None
        self._name: StreamName = name
        self.source: _Source = (name, 0, 0, False)
        self._data, self._at = b"", 0
        #: More than this never stands before a mark.
        self._capacity = CAPACITY
        #: From here on a read leaves its writer waiting, perhaps: a full pipe may hold half of what
        #: it could, as what is written does not share a page with what does not fit in there.
        self._much = min(CAPACITY, _size_of(fd)) // 2
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    @property
    def kept(self) -> int:
        """How many bytes were read and not passed on."""
        return len(self._data) - self._at

    @property
    def is_full(self) -> bool:
        """Whether as much is kept as may be: the rest has to wait where it is."""
        return self.kept >= self._capacity

    def read(self) -> bool:
        """Read what is there, unless there is no room for it; return whether that is much.

        Then its writer may be waiting. The pipe is closed at its end.
        """
        if self.fd < 0 or self.is_full:
            return False
        try:
            data = os.read(self.fd, self._capacity)
        except BlockingIOError:
            return False
        if not data:
            os.close(self.fd)
            self.fd = -1
        self._data, self._at = self._data[self._at :] + data, 0
        is_much = len(data) >= self._much
        if is_much and self._capacity == CAPACITY:
            with contextlib.suppress(OSError, AttributeError):  # Linux alone has it
                self._capacity = fcntl.fcntl(self.fd, fcntl.F_SETPIPE_SZ, _ENLARGED)
        return is_much

    def text(self) -> str:
        """Return what stands before the next mark, which is ``mark`` from then on."""
        if self.mark is not None:
            return ""
        start, end = self._at, self._data.find(marks.MAGIC, self._at)
        if end < 0:
            end = len(self._data) - self._cut()
            self._at = end
        elif end + marks.SIZE <= len(self._data):
            self.mark = marks.decode(self._data, end)
            self._at = end + marks.SIZE
        else:  # its rest is still to come; or never will
            end = end if self.fd >= 0 else len(self._data)
            self._at = end
        return self._decode(self._data[start:end])

    def _cut(self) -> int:
        """Return how many bytes at the end may be the beginning of a mark."""
        if self.fd < 0:
            return 0
        longest = min(len(marks.MAGIC) - 1, self.kept)
        found = (n for n in range(longest, 0, -1) if self._data.endswith(marks.MAGIC[:n]))
        return next(found, 0)

    @property
    def leads(self) -> bool:
        """Whether text of this pipe stands behind the mark, to be passed on first."""
        return self.mark is not None and self.mark.kind in (marks.TEXT, marks.LATE)

    @property
    def awaits_message(self) -> bool:
        """Whether a message on the channel stands at the mark."""
        return self.mark is not None and self.mark.kind == marks.MESSAGE

    def pass_mark(self) -> None:
        """Go past the mark: what follows is of the cell that it names."""
        if self.mark is not None:
            is_late = self.mark.kind == marks.LATE
            self.source = (self._name, self.mark.cell, self.mark.subshell, is_late)
            self.mark = None


def _size_of(fd: int) -> int:
    """Return how many bytes a pipe holds."""
    try:
        return fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)
    except (OSError, AttributeError):  # Linux alone has it
        return CAPACITY


class Pipes:
    """Both pipes of one guest; ``on_text`` gets its text, joined, ``on_spent`` seconds it took.

    ``child_fds`` are the ends that the guest gets. Raises OSError where no descriptors are left.
    ``on_held_up`` is called in another thread when a read waits for a writer (``held_up``).
    """

    def __init__(
        self,
        reactor: Reactor,
        on_text: Callable[[Stream], None],
        on_spent: Callable[[float], None],
        on_held_up: Callable[[int], None],
    ) -> None:
        self._reactor, self._on_text, self._on_spent = reactor, on_text, on_spent
        self.reading, self._reads = 0, 0
        self._on_held_up, self._was_held_up = on_held_up, False
        self.child_fds: list[int] = []
        self._pipes: list[_Pipe] = []
        #: Text that is to be handed on: who gets a piece may ask for more (``drain``).
        self._texts = deque[tuple[_Source, str]]()
        #: The highest mark that was passed; a lower one is nothing to wait for.
        self._passed = 0
        self._timer: Timer | None = None
        self._held = self._is_flood = self._has_rest = False
        names: tuple[StreamName, ...] = "stdout", "stderr"
        try:
            for name in names:
                read, write = os.pipe()
                os.set_blocking(read, False)
                self.child_fds.append(write)
                self._pipes.append(_Pipe(name, read))
        except OSError:
            self.close()
            for fd in self.child_fds:
                os.close(fd)
            raise
        self._watch()
        watch.add(self)

    # --- when -------------------------------------------------------------------------------------

    def hold(self, *, held: bool) -> None:
        """Leave what is written where it is, so that writers have to wait, or take it again."""
        self._held = held
        self._watch()
        self._read_rest_soon()

    def _watch(self) -> None:
        """Listen to the pipes, unless they are read in a moment, or must not be read."""
        if self._held:
            self._cancel_timer()
        listens = not self._held and self._timer is None
        for pipe in self._pipes:
            if pipe.fd >= 0 and listens and not pipe.is_full:
                self._reactor.watch(pipe.fd, self._readable)
            elif pipe.fd >= 0:
                self._reactor.unwatch(pipe.fd)

    def _readable(self) -> None:
        if self._is_flood:
            self.drain()
        else:
            self._read_soon()

    def _read_soon(self) -> None:
        if self._timer is None and not self._held:
            self._timer = self._reactor.call_later(LATENCY, self._read_moment)
            self._watch()

    def _read_moment(self) -> None:
        """Pass on what a moment has brought; wait for the rest of a line, once."""
        began = thread_time()
        self._read()
        if self._has_rest:
            self._read_soon()
        elif self._texts and not self._texts[-1][1].endswith("\n") and not self._is_flood:
            self._timer = self._reactor.call_later(LINE_LATENCY, self.drain)
        self._watch()
        if self._timer is None or self._has_rest:
            self._hand_on()
        self._on_spent(thread_time() - began)

    def _read_rest_soon(self) -> None:
        if self._texts or any(pipe.kept for pipe in self._pipes):
            self._read_soon()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Stop listening, and hand nothing on any more."""
        watch.drop(self)
        self._texts.clear()
        self._cancel_timer()
        for pipe in self._pipes:
            if pipe.fd >= 0:
                self._reactor.unwatch(pipe.fd)
                os.close(pipe.fd)
                pipe.fd = -1

    # --- what -------------------------------------------------------------------------------------

    def drain(self, before: int | None = None) -> None:
        """Pass on what was written; at most up to a mark whose message is not there yet.

        With ``before``, the mark of a message that has come, all that was written before it.
        """
        began = thread_time()
        self._read(before)
        self._watch()
        self._hand_on()
        if self._has_rest:
            self._read_soon()
        self._on_spent(thread_time() - began)

    def _read(self, before: int | None = None) -> None:
        """Read what is there, and put in order what may be handed on."""
        self._cancel_timer()
        for pipe in self._pipes:
            if pipe.fd >= 0:
                self._reactor.unwatch(pipe.fd)
        if any(pipe.is_full for pipe in self._pipes):
            self._pass_on(before)  # and have room for what comes behind that
        self._reads += 1
        self.reading = self._reads
        try:
            is_much = [pipe.read() for pipe in self._pipes]
        finally:
            self.reading = 0
        self._is_flood = any(is_much)
        self._pass_on(before)
        if self._was_held_up:
            self._was_held_up = False
            self._texts.append((("stderr", 0, 0, False), _HELD_UP))

    def end_writers(self, times: int) -> None:
        """End what the guest has started, as one of it holds the lock of a pipe."""
        self._was_held_up = True
        self._on_held_up(times)

    def drain_rest(self) -> None:
        """Pass on all that an ended guest has written."""
        self.drain(before=_END)

    def passed(self, number: int) -> None:
        """Note that a message was shown: what stands behind its mark may follow."""
        self._passed = max(self._passed, number)
        self._read_rest_soon()

    def _pass_on(self, before: int | None) -> None:
        """Put text in order, up to a message that is to come; else as much as a turn takes."""
        self._has_rest = False
        while before is not None or len(self._texts) < MOST_PIECES:
            for pipe in self._pipes:
                if text := pipe.text():
                    self._texts.append((pipe.source, text))
            if not self._pass_mark(before):
                return
        self._has_rest = True

    def _pass_mark(self, before: int | None) -> bool:
        """Go past the lowest mark that the pipes stand at; return whether that may be."""
        marked = [(pipe.mark.number, pipe) for pipe in self._pipes if pipe.mark is not None]
        if not marked:
            return False
        number = min(number for number, _ in marked)
        reached = [pipe for found, pipe in marked if found == number]
        if number > self._passed:
            waits = self._waits(reached, marked) if before is None else number >= before
            if waits:
                return False
            self._passed = number
        # Text behind a mark comes before what the other pipe has behind it.
        self._pipes.sort(key=lambda pipe: not (pipe in reached and pipe.leads))
        for pipe in reached:
            pipe.pass_mark()
        return True

    def _waits(self, reached: list[_Pipe], marked: list[tuple[int, _Pipe]]) -> bool:
        """Return whether a mark's message, or its like in the other pipe, is still to come."""
        if any(pipe.is_full for pipe in self._pipes):
            return False  # a writer may be waiting for room, and the guest for that
        if any(pipe.awaits_message for pipe in reached):
            return True
        return len(marked) < sum(pipe.fd >= 0 for pipe in self._pipes)

    def _hand_on(self) -> None:
        while self._texts:
            source = self._texts[0][0]
            pieces = list[str]()
            while self._texts and self._texts[0][0] == source:
                pieces.append(self._texts.popleft()[1])
            name, cell, subshell, late = source
            text = "".join(pieces)
            self._on_text(Stream(name=name, text=text, cell=cell, subshell=subshell, late=late))
