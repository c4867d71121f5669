"""The guest's end of its only way out."""

from __future__ import annotations

import array
import contextlib
import os
import select
import socket
import threading
from collections import deque
from typing import TYPE_CHECKING, Final, NoReturn

from cellblock.wire import frames, messages

if TYPE_CHECKING:
    from collections.abc import Iterator

    import msgspec

READ_SIZE = 1 << 16
#: Seconds that the last message waits for another thread's to be sent.
_PATIENCE = 1.0
_INT: Final = array.array("i")
#: Room for the descriptors that come with a ``Snapshot``.
_ROOM: Final = socket.CMSG_SPACE(3 * _INT.itemsize)
#: MSG_CMSG_CLOEXEC (recvmsg(2)), which Python's socket module does not name.
_CLOSE_ON_EXEC: Final = 0x40000000
# Built in the zygote, once for all its guests.
_decode: frames.Decoder[messages.ToGuest] = frames.Decoder(messages.ToGuest)


class HostGone(SystemExit):
    """The host closed the channel: nothing is left to do."""


class Channel:
    """Typed messages over the socket to the host.

    ``send`` may be called from any thread, ``recv`` from the main thread. A signal handler that
    wants to raise must ask ``defer`` first: an exception in the middle of a frame would leave
    half of it on the wire.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lock = threading.Lock()
        self._main = threading.get_ident()
        self._splitter = frames.Splitter()
        self._inbox: deque[messages.ToGuest] = deque()
        self._critical = False
        self._deferred = False
        self._descriptors: list[int] = []
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def fileno(self) -> int:
        """Return the socket's descriptor, for an event loop to watch."""
        return self._sock.fileno()

    def defer(self) -> bool:
        """Say whether an interrupt must wait; it is then raised when the frame is done."""
        if self._critical:
            self._deferred = True
        return self._critical

    def send(self, message: msgspec.Struct) -> None:
        """Send one message.

        Raises ``FrameTooLargeError`` or ``TypeError`` before a byte is sent.
        """
        frame = frames.encode(message)
        if threading.get_ident() != self._main:
            with self._lock:
                self._sock.sendall(frame)
            return
        self._critical = True
        try:
            with self._lock:
                self._sock.sendall(frame)
        finally:
            self._leave()

    def last_words(self, message: msgspec.Struct) -> NoReturn:
        """Send ``message`` and end the process, without a word of anybody else's code.

        Whoever holds the lock may be the very thread that calls, in the middle of a frame: then
        the end of the channel says it all.
        """
        try:
            if self._lock.acquire(timeout=_PATIENCE):
                self._sock.sendall(frames.encode(message))
        finally:
            os._exit(1)

    def comes(self, seconds: float) -> bool:
        """Say whether something has arrived, or does within that time."""
        return bool(self._inbox or self._poll.poll(seconds * 1000))

    def recv(self) -> messages.ToGuest:
        """Return the next message, waiting for it; an interrupt loses nothing."""
        while not self._inbox:
            self._poll.poll()
            self.read()
        return self._inbox.popleft()

    def read(self) -> None:
        """Take what has arrived; called when the socket is readable."""
        self._critical = True
        try:
            data, ancillary, *_ = self._sock.recvmsg(READ_SIZE, _ROOM, _CLOSE_ON_EXEC)
            if not data:
                raise HostGone
            if ancillary:
                self._keep(ancillary)
            self._inbox.extend(map(_decode, self._splitter.feed(data)))
        finally:
            self._leave()

    def _keep(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                whole = len(payload) - len(payload) % _INT.itemsize
                self._descriptors += array.array(_INT.typecode, payload[:whole])

    def take_descriptors(self) -> list[int]:
        """Return the descriptors that came with what was read."""
        taken, self._descriptors = self._descriptors, []
        return taken

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """Have no frame under way, for a fork."""
        with self._lock:
            yield

    def renew(self) -> None:
        """Begin anew on the descriptor, which is another socket now: a copy's own."""
        self._lock, self._critical, self._deferred = threading.Lock(), False, False
        self._main = threading.get_ident()
        self._splitter = frames.Splitter()
        self._inbox.clear()
        self._descriptors.clear()

    def waiting(self) -> bool:
        """Say whether a whole message is here already."""
        return bool(self._inbox)

    def _leave(self) -> None:
        self._critical = False
        if self._deferred:
            self._deferred = False
            raise KeyboardInterrupt


def take_input(channel: Channel, request: messages.InputRequest) -> str:
    """Ask the user and return the answer."""
    channel.send(request)
    while True:
        message = channel.recv()
        if isinstance(message, messages.Input) and message.id == request.id:
            return message.value
