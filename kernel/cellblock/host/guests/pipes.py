"""The host's end of a guest's stdout and stderr: text in the order in which it was written.

Text comes by two pipes, and messages by the channel. The guest writes marks into the pipes
(``wire.marks``), which say what text of one pipe came before what text of the other, and before
which message. ``Pipes`` passes a mark when the other pipe has come to the same mark, or when the
message that the mark stands for was shown. The guest wrote that other mark or message first, so it
is certain to come and no clock is needed. If it is lost all the same, the next mark or a full pipe
goes past the mark.
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


#: Bytes that a pipe holds (pipe(7)), and bytes that a pipe which was full is enlarged to. A user
#: whose pipes together hold too much gets pipes of 8 KiB and may enlarge none. Cells can't enlarge
#: a pipe.
CAPACITY: Final = 1 << 16
_ENLARGED_CAPACITY: Final = 1 << 18
#: Seconds that text waits for more text, too short for a reader to notice. When a display comes or
#: the cell ends, the text is passed on at once.
LATENCY: Final = 0.01
#: Seconds that text waits if it ends inside a line. ``print`` writes the newline separately, and on
#: a busy machine the newline comes later. In two messages, the line would be two outputs in a
#: notebook that nbclient has run.
LINE_LATENCY: Final = 0.1
#: Pieces of text between two marks that are passed on in one turn of the event loop, which takes
#: some 10 ms. A pipe may hold 20,000, and other events wait meanwhile.
MOST_PIECES: Final = 500
#: A number above that of every mark.
_AFTER_ALL: Final = 1 << 64

#: The text that the user sees if a read was held up (``held_up``).
_HELD_UP: Final = (
    "[cellblock ended what this cell had started: it kept the host from reading the output]\n"
)

#: The source of text: stream, cell, subshell, and whether a thread of an earlier cell wrote it.
_Source = tuple[StreamName, int, int, bool]


class _Pipe:
    """One pipe: the bytes that were read and not passed on yet, and the mark reached in them."""

    def __init__(self, name: StreamName, fd: int) -> None:
        self.fd = fd
        self.mark: marks.Mark | None = None
        self._name: StreamName = name
        self.source: _Source = (name, 0, 0, False)
        self._data = b""
        self._at = 0
        #: Bytes that are kept at most. There is never more text than this before a mark.
        self._capacity = CAPACITY
        #: Bytes of a read from which on the pipe may have been full, and its writer waiting. A full
        #: pipe may hold only half of its capacity, because a write that does not fit into the rest
        #: of a page begins a new one.
        self._much = min(CAPACITY, _size_of(fd)) // 2
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    @property
    def kept(self) -> int:
        """How many bytes were read and not passed on yet."""
        return len(self._data) - self._at

    @property
    def is_full(self) -> bool:
        """Whether no more may be kept, so that the rest must wait in the pipe."""
        return self.kept >= self._capacity

    def read(self) -> bool:
        """Read what is in the pipe, if there is room for it; close the pipe at its end.

        Return whether it was so much that a writer may be waiting.
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
        self._data = self._data[self._at :] + data
        self._at = 0
        is_much = len(data) >= self._much
        if is_much and self._capacity == CAPACITY:
            with contextlib.suppress(OSError, AttributeError):  # only Linux has this
                self._capacity = fcntl.fcntl(self.fd, fcntl.F_SETPIPE_SZ, _ENLARGED_CAPACITY)
        return is_much

    def text(self) -> str:
        """Return the text before the next mark. The mark is ``mark`` from then on."""
        if self.mark is not None:
            return ""
        start = self._at
        end = self._data.find(marks.MAGIC, self._at)
        if end < 0:
            end = len(self._data) - self._unfinished_mark()
            self._at = end
        elif end + marks.SIZE <= len(self._data):
            self.mark = marks.decode(self._data, end)
            self._at = end + marks.SIZE
        else:  # the rest of a mark is still to come; or it never will, if the pipe is closed
            end = end if self.fd >= 0 else len(self._data)
            self._at = end
        return self._decode(self._data[start:end])

    def _unfinished_mark(self) -> int:
        """Return how many bytes at the end may be the beginning of a mark, and so must wait."""
        if self.fd < 0:
            return 0
        longest = min(len(marks.MAGIC) - 1, self.kept)
        lengths = (
            length for length in range(longest, 0, -1) if self._data.endswith(marks.MAGIC[:length])
        )
        return next(lengths, 0)

    @property
    def leads(self) -> bool:
        """Whether this pipe's text after the mark comes before the other pipe's text after it."""
        return self.mark is not None and self.mark.kind in (marks.TEXT, marks.LATE)

    @property
    def awaits_message(self) -> bool:
        """Whether the mark stands for a message on the channel."""
        return self.mark is not None and self.mark.kind == marks.MESSAGE

    def pass_mark(self) -> None:
        """Go past the mark: the text after it is that of the cell which the mark names."""
        if self.mark is not None:
            is_late = self.mark.kind == marks.LATE
            self.source = (self._name, self.mark.cell, self.mark.subshell, is_late)
            self.mark = None


def _size_of(fd: int) -> int:
    """Return how many bytes a pipe can hold."""
    try:
        return fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)
    except (OSError, AttributeError):  # only Linux has this
        return CAPACITY


class Pipes:
    """Both pipes of one guest.

    ``on_text`` is called with text, joined as far as it has the same source. ``on_spent`` is called
    with the seconds of processor time that reading took. ``on_held_up`` is called in another thread
    if a read waits for a writer (``held_up``). ``child_fds`` are the ends for the guest. Raises
    OSError if no descriptors are left.
    """

    def __init__(
        self,
        reactor: Reactor,
        on_text: Callable[[Stream], None],
        on_spent: Callable[[float], None],
        on_held_up: Callable[[int], None],
    ) -> None:
        self._reactor = reactor
        self._on_text = on_text
        self._on_spent = on_spent
        self.reading = 0
        self._reads = 0
        self._on_held_up = on_held_up
        self._was_held_up = False
        self.child_fds: list[int] = []
        self._pipes: list[_Pipe] = []
        #: Text that will be handed on. A queue, because whoever gets a piece may call ``drain``.
        self._texts = deque[tuple[_Source, str]]()
        #: The highest mark that was passed. Nothing has to be waited for at a lower mark.
        self._passed = 0
        self._timer: Timer | None = None
        self._held = self._is_flood = self._has_rest = False
        names: tuple[StreamName, ...] = "stdout", "stderr"
        try:
            for name in names:
                read_fd, write_fd = os.pipe()
                os.set_blocking(read_fd, False)
                self.child_fds.append(write_fd)
                self._pipes.append(_Pipe(name, read_fd))
        except OSError:
            self.close()
            for fd in self.child_fds:
                os.close(fd)
            raise
        self._watch()
        watch.add(self)

    # --- when the pipes are read ------------------------------------------------------------------

    def hold(self, *, held: bool) -> None:
        """Stop reading, so that writers must wait when a pipe is full; or read again."""
        self._held = held
        self._watch()
        self._read_rest_soon()

    def _watch(self) -> None:
        """Listen to the pipes, unless a timer will read them anyway, or they are held."""
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
        """Pass on what came in the last moment; wait once for the rest of a line."""
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
        """Stop listening, and close the pipes. Text that was not handed on is dropped."""
        watch.drop(self)
        self._texts.clear()
        self._cancel_timer()
        for pipe in self._pipes:
            if pipe.fd >= 0:
                self._reactor.unwatch(pipe.fd)
                os.close(pipe.fd)
                pipe.fd = -1

    # --- what is passed on, in which order --------------------------------------------------------

    def drain(self, before: int | None = None) -> None:
        """Pass on what was written, up to a mark whose message has not come yet.

        ``before`` is the mark of a message that has come: pass on all that was written before it.
        """
        began = thread_time()
        self._read(before)
        self._watch()
        self._hand_on()
        if self._has_rest:
            self._read_soon()
        self._on_spent(thread_time() - began)

    def _read(self, before: int | None = None) -> None:
        """Read both pipes, and put in order what may be handed on."""
        self._cancel_timer()
        for pipe in self._pipes:
            if pipe.fd >= 0:
                self._reactor.unwatch(pipe.fd)
        if any(pipe.is_full for pipe in self._pipes):
            self._pass_on(before)  # to have room for what is still in the pipe
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
        """End the guest's programs, because a writer holds the lock of a pipe (``held_up``)."""
        self._was_held_up = True
        self._on_held_up(times)

    def drain_rest(self) -> None:
        """Pass on all that an ended guest has written."""
        self.drain(before=_AFTER_ALL)

    def passed(self, number: int) -> None:
        """Note that the message with this mark was shown: text after the mark may follow."""
        self._passed = max(self._passed, number)
        self._read_rest_soon()

    def _pass_on(self, before: int | None) -> None:
        """Put text in order, up to a mark that must wait, or as much as one turn may take."""
        self._has_rest = False
        while before is not None or len(self._texts) < MOST_PIECES:
            for pipe in self._pipes:
                if text := pipe.text():
                    self._texts.append((pipe.source, text))
            if not self._pass_mark(before):
                return
        self._has_rest = True

    def _pass_mark(self, before: int | None) -> bool:
        """Go past the lowest mark that the pipes have reached; return False if it must wait."""
        marked = [(pipe.mark.number, pipe) for pipe in self._pipes if pipe.mark is not None]
        if not marked:
            return False
        number = min(number for number, _ in marked)
        reached = [pipe for mark_number, pipe in marked if mark_number == number]
        if number > self._passed:
            waits = self._waits(reached, marked) if before is None else number >= before
            if waits:
                return False
            self._passed = number
        # The pipe whose text comes first after the mark is read first.
        self._pipes.sort(key=lambda pipe: not (pipe in reached and pipe.leads))
        for pipe in reached:
            pipe.pass_mark()
        return True

    def _waits(self, reached: list[_Pipe], marked: list[tuple[int, _Pipe]]) -> bool:
        """Return whether a mark's message, or the same mark in the other pipe, is still to come."""
        if any(pipe.is_full for pipe in self._pipes):
            return False  # a writer may be waiting for room, and the guest for that writer
        if any(pipe.awaits_message for pipe in reached):
            return True
        return len(marked) < sum(pipe.fd >= 0 for pipe in self._pipes)

    def _hand_on(self) -> None:
        """Call ``on_text`` with the texts in order, joining those of the same source."""
        while self._texts:
            source = self._texts[0][0]
            pieces = list[str]()
            while self._texts and self._texts[0][0] == source:
                pieces.append(self._texts.popleft()[1])
            name, cell, subshell, late = source
            text = "".join(pieces)
            self._on_text(Stream(name=name, text=text, cell=cell, subshell=subshell, late=late))
