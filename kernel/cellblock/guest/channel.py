"""The guest's end of the channel: its only connection to the host.

Threads take turns reading: the main thread while it waits, otherwise one thread that waits for an
answer, otherwise an event loop. Whoever reads sorts what arrives:

    ToolResult           -> ``on_result``: wakes the thread or task that waits for it
    for a subshell       -> ``on_subshell``: the subshell's queue
    everything else      -> the inbox of the main thread
"""

from __future__ import annotations

import array
import contextlib
import os
import select
import socket
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NoReturn

from cellblock.descriptors import is_readable
from cellblock.wire import frames, messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import msgspec

READ_SIZE = 1 << 16
#: Seconds that a guest's last message waits until another thread has sent its message.
_TIMEOUT = 1.0
_INT: Final = array.array("i")
#: Room for the three descriptors that come with a ``Snapshot``.
_ROOM: Final = socket.CMSG_SPACE(3 * _INT.itemsize)
#: MSG_CMSG_CLOEXEC (recvmsg(2)), which Python's socket module does not name.
_CLOSE_ON_EXEC: Final = 0x40000000
_FLAGS: Final = _CLOSE_ON_EXEC | socket.MSG_DONTWAIT
# Made in the zygote, once for all its guests.
_decode: frames.Decoder[messages.ToGuest] = frames.Decoder(messages.ToGuest)


def _nothing() -> None: ...
def _is_for_main(_message: Any) -> None: ...


class HostGone(SystemExit):
    """The host closed the channel, so the guest must end."""


class Channel:
    """Typed messages over the socket to the host.

    Any thread may call ``send``, and any thread that waits may call ``read``. Only the main thread
    may call ``recv`` and ``wait``.

    A signal handler that wants to raise must ask ``defer_interrupt`` first: an exception while a
    frame is being sent would leave half of the frame on the wire.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._locks()
        self._main = threading.get_ident()
        self._splitter = frames.Splitter()
        self._inbox: deque[messages.ToGuest] = deque()
        self._reading = threading.Lock()
        #: The main thread waits for the socket. Other threads then must not read, because the main
        #: thread would not notice what they have read.
        self.main_waits = False
        #: Called by the thread that reads, with the answer to a tool call. Returns a function that
        #: wakes the thread or task that waits for it. Must not run any code of cells.
        self.on_result: Callable[[Any], Callable[[], None]] = lambda _answer: _nothing
        #: Called by the thread that reads, if there is a message for the main thread.
        self.on_message: Callable[[], None] = _nothing
        #: Called by the thread that reads, with any other message. Returns a function that delivers
        #: it to its subshell, or None if it is for the main thread.
        self.on_subshell: Callable[[Any], Callable[[], None] | None] = _is_for_main
        #: Called when the main thread no longer waits here.
        self.on_leave: Callable[[], None] = _nothing
        #: The main thread must not be interrupted now; an interrupt has been deferred.
        self._critical = False
        self._deferred = False
        #: Descriptors that arrived, until ``take_descriptors`` fetches them.
        self._descriptors: list[int] = []
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        #: This process was forked by a cell, so the channel belongs to its parent.
        self.is_parents = False
        os.register_at_fork(after_in_child=self._leave_to_parent)

    def _leave_to_parent(self) -> None:
        """Drop the socket in a fork: the frames of two processes would mix on the wire."""
        self.is_parents = True
        try:
            os.dup2(0, self._sock.fileno(), inheritable=False)
        except OSError:  # a cell has closed stdin
            os.close(self._sock.fileno())

    def _locks(self) -> None:
        #: Held while a frame is sent.
        self._lock = threading.Lock()
        # With these two, the main thread waits for at most one frame of other threads, however many
        # threads there are. ``_others`` lets one other thread at a time come as far as ``_lock``.
        # The main thread holds ``_main_first`` from when it wants to send; others pass it first.
        self._others = threading.Lock()
        self._main_first = threading.Lock()

    def fileno(self) -> int:
        """Return the socket's descriptor, for an event loop to watch."""
        return self._sock.fileno()

    def defer_interrupt(self) -> bool:
        """Return whether an interrupt must wait. It is then raised when the frame is complete.

        Called by the signal handler.
        """
        if self._critical:
            self._deferred = True
        return self._critical

    def send(self, message: msgspec.Struct) -> None:
        """Send one message.

        Raises ``FrameTooLargeError`` or ``TypeError`` before a byte is sent, and RuntimeError in a
        process that a cell forked.
        """
        frame = frames.encode(message)
        self._check_own()
        if threading.get_ident() != self._main:
            with self._others:
                with self._main_first:
                    pass
                with self._lock:
                    self._sock.sendall(frame)
            return
        self._critical = True
        try:
            with self._main_first, self._lock:
                self._sock.sendall(frame)
        finally:
            self._leave()

    def _check_own(self) -> None:
        if self.is_parents:
            raise RuntimeError("a process that a cell forked can't reach the host; its parent can")

    def send_and_exit(self, message: msgspec.Struct) -> NoReturn:
        """Send ``message`` and end the process, without running any code of cells.

        If this thread itself holds the lock, in the middle of a frame, the message can't be sent.
        The host then only sees the end of the channel.
        """
        try:
            if self._lock.acquire(timeout=_TIMEOUT):
                self._sock.sendall(frames.encode(message))
        finally:
            os._exit(1)

    def is_readable(self, seconds: float) -> bool:
        """Return whether something has arrived, or arrives within ``seconds``."""
        return bool(self._inbox or self._poll.poll(seconds * 1000))

    def keep(self, message: messages.ToGuest) -> None:
        """Keep a message for the main thread."""
        self._inbox.append(message)

    def take_comm(self) -> messages.CommIn | None:
        """Return the next message for the main thread if it is a comm message, else None."""
        if self._inbox and isinstance(self._inbox[0], messages.CommIn):
            return self._inbox.popleft()  # type: ignore[return-value]
        return None

    def has_arrived(self) -> bool:
        """Return whether the socket can be read now. Any thread may call this."""
        return is_readable(self._sock)

    def recv(self) -> messages.ToGuest:
        """Wait for the next message and return it. An interrupt meanwhile loses no message."""
        with self._waited_by_main():
            while not self._inbox:
                self._poll.poll()
                self.read()
            return self._inbox.popleft()

    def wait(self, answered: Callable[[], bool]) -> None:
        """Read in the main thread until ``answered``; deliver to others what is for them."""
        with self._waited_by_main():
            while not answered():
                self._poll.poll()
                self.read(tell=True)

    @contextlib.contextmanager
    def _waited_by_main(self) -> Iterator[None]:
        before = self.main_waits
        try:
            # Wait until no other thread reads: what it reads would go unnoticed here.
            self._critical = True
            with self._reading:
                self.main_waits = True
            self._leave()
            yield
        finally:
            self.main_waits = before
            if not before:
                self.on_leave()

    def is_main(self) -> bool:
        """Return whether the calling thread is the main thread."""
        return threading.get_ident() == self._main

    def read(self, *, tell: bool = False) -> None:
        """Read what has arrived, if anything, and deliver it. Called when the socket is readable.

        ``tell`` says that the main thread will not act at once on a request that it reads now. The
        host is then sent ``Queued`` for each. That always holds for requests that another thread
        reads.
        """
        main = self.is_main()
        wakes: list[Callable[[], None]] = []
        for_subshells: list[messages.ToGuest] = []
        known_count = len(self._inbox)
        self._check_own()
        if main:
            self._critical = True
        try:
            with self._reading:
                if main or not self.main_waits:
                    self._take(wakes, for_subshells)
            # After the lock is released: a thread that is woken may call a tool at once.
            for wake in wakes:
                wake()
            received = for_subshells
            if self._inbox:
                self.on_message()
                if tell or not main:
                    received += list(self._inbox)[known_count:]
            # The host must know that these were read although nobody acts on them yet. Otherwise
            # they would seem to have vanished.
            for message in received:
                if isinstance(message, messages.Execute | messages.CommIn):
                    self.send(messages.Queued(id=message.id))
        finally:
            if main:
                self._leave()

    def _take(self, wakes: list[Callable[[], None]], for_subshells: list[messages.ToGuest]) -> None:
        """Read the socket and sort the messages. The caller holds ``_reading``.

        Adds to ``wakes`` the functions that wake waiting threads and deliver to subshells, and to
        ``for_subshells`` the messages of subshells. Answers of tools are stored before this
        returns: the main thread, which then gets ``_reading``, would otherwise wait for an answer
        that has arrived.
        """
        try:
            data, ancillary, *_ = self._sock.recvmsg(READ_SIZE, _ROOM, _FLAGS)
        except BlockingIOError:
            return  # another thread was quicker
        if not data:
            raise HostGone
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                whole = len(payload) - len(payload) % _INT.itemsize
                self._descriptors += array.array(_INT.typecode, payload[:whole])
        for message in map(_decode, self._splitter.feed(data)):
            if isinstance(message, messages.ToolResult):
                wakes.append(self.on_result(message))
            elif (hand_over := self.on_subshell(message)) is not None:
                wakes.append(hand_over)
                for_subshells.append(message)
            else:
                self._inbox.append(message)

    def take_descriptors(self) -> list[int]:
        """Return the descriptors that came with the messages read since the last call."""
        descriptors, self._descriptors = self._descriptors, []
        return descriptors

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keep other threads from sending a frame meanwhile. Used around a fork."""
        with self._lock:
            yield

    def reset_after_fork(self) -> None:
        """Reset the state in a copy, whose descriptor is now a channel of its own."""
        self.is_parents = False
        self._locks()
        self._critical = self._deferred = False
        self._reading = threading.Lock()
        self.main_waits = False
        self._main = threading.get_ident()
        self._splitter = frames.Splitter()
        self._inbox.clear()
        self._descriptors.clear()

    def waiting(self) -> bool:
        """Return whether a message for the main thread has been read."""
        return bool(self._inbox)

    def _leave(self) -> None:
        """Raise an interrupt that was deferred; from here on they are not."""
        self._critical = False
        if self._deferred:
            self._deferred = False
            raise KeyboardInterrupt


def take_input(channel: Channel, request: messages.InputRequest) -> str:
    """Ask the user and return the answer. Raises EOFError if there will be none."""
    channel.send(request)
    while True:
        message = channel.recv()
        if isinstance(message, messages.Input) and message.id == request.id:
            if message.eof:
                raise EOFError("nobody answers this cell's questions")
            return message.value
