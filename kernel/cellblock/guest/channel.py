"""The guest's end of its only way out."""

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
#: Seconds that the last message waits for another thread's to be sent.
_TIMEOUT = 1.0
_INT: Final = array.array("i")
#: Room for the descriptors that come with a ``Snapshot``.
_ROOM: Final = socket.CMSG_SPACE(3 * _INT.itemsize)
#: MSG_CMSG_CLOEXEC (recvmsg(2)), which Python's socket module does not name.
_CLOSE_ON_EXEC: Final = 0x40000000
_FLAGS: Final = _CLOSE_ON_EXEC | socket.MSG_DONTWAIT
# Built in the zygote, once for all its guests.
_decode: frames.Decoder[messages.ToGuest] = frames.Decoder(messages.ToGuest)


def _nothing() -> None: ...
def _is_mains(_message: Any) -> None: ...


class HostGone(SystemExit):
    """The host closed the channel: nothing is left to do."""


class Channel:
    """Typed messages over the socket to the host.

    ``send`` may be called from any thread, ``recv`` from the main thread. ``read`` is for whoever
    waits: answers to calls of tools go to ``on_result``, what is a subshell's to ``on_subshell``,
    everything else is kept for the main thread. A signal handler that wants to raise must ask
    ``defer_interrupt`` first: an exception in the middle of a frame would leave half of it on the
    wire.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._locks()
        self._main = threading.get_ident()
        self._splitter = frames.Splitter()
        self._inbox: deque[messages.ToGuest] = deque()
        self._reading = threading.Lock()
        #: The main thread waits here: what arrives is for it to read, or it would wait on.
        self.main_waits = False
        #: Called by whoever reads: with an answer, and when something for the main thread is here.
        #: The first returns what wakes whoever waits for the answer, and runs nobody's code.
        self.on_result: Callable[[Any], Callable[[], None]] = lambda _answer: _nothing
        self.on_message: Callable[[], None] = _nothing
        #: Returns what hands a message to its subshell, or None where that is for the main thread.
        self.on_subshell: Callable[[Any], Callable[[], None] | None] = _is_mains
        #: Called when the main thread goes on to something else.
        self.on_leave: Callable[[], None] = _nothing
        self._critical = False
        self._deferred = False
        self._descriptors: list[int] = []
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        #: This is a process that a cell forked: the channel is its parent's.
        self.is_parents = False
        os.register_at_fork(after_in_child=self._leave_to_parent)

    def _leave_to_parent(self) -> None:
        """Drop the socket in a fork: two processes' frames would break each other's."""
        self.is_parents = True
        try:
            os.dup2(0, self._sock.fileno(), inheritable=False)
        except OSError:  # whoever closed stdin
            os.close(self._sock.fileno())

    def _locks(self) -> None:
        #: Held while a frame is sent.
        self._lock = threading.Lock()
        #: The main thread waits for one frame of all other threads' at most, however many they are.
        self._others, self._main_first = threading.Lock(), threading.Lock()

    def fileno(self) -> int:
        """Return the socket's descriptor, for an event loop to watch."""
        return self._sock.fileno()

    def defer_interrupt(self) -> bool:
        """Whether an interrupt must wait; it is then raised when the frame is done."""
        if self._critical:
            self._deferred = True
        return self._critical

    def send(self, message: msgspec.Struct) -> None:
        """Send one message.

        Raises ``FrameTooLargeError`` or ``TypeError`` before a byte is sent.
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
        """Send ``message`` and end the process, without a word of anybody else's code.

        Whoever holds the lock may be the very thread that calls, in the middle of a frame: then
        the end of the channel says it all.
        """
        try:
            if self._lock.acquire(timeout=_TIMEOUT):
                self._sock.sendall(frames.encode(message))
        finally:
            os._exit(1)

    def is_readable(self, seconds: float) -> bool:
        """Whether something has arrived, or does within ``seconds``."""
        return bool(self._inbox or self._poll.poll(seconds * 1000))

    def keep(self, message: messages.ToGuest) -> None:
        """Keep a message for the main thread."""
        self._inbox.append(message)

    def take_comm(self) -> messages.CommIn | None:
        """Return a comm message that is the next in turn, if one is."""
        if self._inbox and isinstance(self._inbox[0], messages.CommIn):
            return self._inbox.popleft()  # type: ignore[return-value]
        return None

    def has_arrived(self) -> bool:
        """Whether something can be read now; any thread may ask."""
        return is_readable(self._sock)

    def recv(self) -> messages.ToGuest:
        """Return the next message, waiting for it; an interrupt loses nothing."""
        with self._waited_by_main():
            while not self._inbox:
                self._poll.poll()
                self.read()
            return self._inbox.popleft()

    def wait(self, answered: Callable[[], bool]) -> None:
        """Read, in the main thread, until ``answered``; what is for others is handed to them."""
        with self._waited_by_main():
            while not answered():
                self._poll.poll()
                self.read(tell=True)

    @contextlib.contextmanager
    def _waited_by_main(self) -> Iterator[None]:
        before = self.main_waits
        try:
            # Not while another thread reads: what that one takes would go unnoticed.
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
        """Whether the main thread asks."""
        return threading.get_ident() == self._main

    def read(self, *, tell: bool = False) -> None:
        """Take what has arrived, if anything; called when the socket is readable.

        ``tell``: the main thread does not take a request up at once. Of other threads that is so.
        """
        main = self.is_main()
        wakes: list[Callable[[], None]] = []
        handed: list[messages.ToGuest] = []
        known = len(self._inbox)
        self._check_own()
        if main:
            self._critical = True
        try:
            with self._reading:
                if main or not self.main_waits:
                    self._take(wakes, handed)
            # No lock is held: whom they wake may call a tool at once.
            for wake in wakes:
                wake()
            read = handed
            if self._inbox:
                self.on_message()
                if tell or not main:
                    read += list(self._inbox)[known:]
            # The host is to know that these were read, though nobody acts on them yet: it would
            # look as if they had vanished.
            for message in read:
                if isinstance(message, messages.Execute | messages.CommIn):
                    self.send(messages.Queued(id=message.id))
        finally:
            if main:
                self._leave()

    def _take(self, wakes: list[Callable[[], None]], handed: list[messages.ToGuest]) -> None:
        """Read what is there; answers are in their places when this returns.

        ``handed`` gets what is a subshell's.

        Else the main thread could find its own in none, and wait for what has come.
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
                handed.append(message)
            else:
                self._inbox.append(message)

    def take_descriptors(self) -> list[int]:
        """Return the descriptors that came with what was read."""
        taken, self._descriptors = self._descriptors, []
        return taken

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Send no frame meanwhile: for a fork."""
        with self._lock:
            yield

    def reset_after_fork(self) -> None:
        """Reset a copy, whose descriptor is a socket of its own now."""
        self.is_parents = False
        self._locks()
        self._critical = self._deferred = False
        self._reading, self.main_waits = threading.Lock(), False
        self._main = threading.get_ident()
        self._splitter = frames.Splitter()
        self._inbox.clear()
        self._descriptors.clear()

    def waiting(self) -> bool:
        """Whether a whole message is here already."""
        return bool(self._inbox)

    def _leave(self) -> None:
        self._critical = False
        if self._deferred:
            self._deferred = False
            raise KeyboardInterrupt


def take_input(channel: Channel, request: messages.InputRequest) -> str:
    """Ask the user and return the answer. Raises EOFError where there will be none."""
    channel.send(request)
    while True:
        message = channel.recv()
        if isinstance(message, messages.Input) and message.id == request.id:
            if message.eof:
                raise EOFError("nobody answers this cell's questions")
            return message.value
