"""The host's end of one of its own worker processes: its socket, its process and its end.

The host starts workers for tools, operations, language models and the network (relay, ports). A
worker runs ``main`` of a module with the host's interpreter, and exchanges frames with the host
(``wire.frames``). It is trusted more than a guest, but must not hold up the event loop.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from cellblock.errors import WireError
from cellblock.host.guests.spawn import import_path
from cellblock.wire import frames

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import msgspec

    from cellblock.host.reactor import Reactor


READ_SIZE = 1 << 16
#: Reads of a worker's socket in a row.
MOST_READS = 16
#: Seconds that a worker has for its own clean-up when the host has hung up.
PATIENCE = 1.0
#: Beginnings of the environment variables that a worker inherits, because they must be set before
#: its interpreter starts. Everything else is sent over the socket.
_EARLY = ("LANG", "LC_", "LD_", "LOCALDOMAIN", "PATH", "RES_OPTIONS", "TZ")
_BOOT = (
    "import gc, sys;"
    "gc.disable();"
    "sys.path[:] = sys.argv[3:];"
    "from {module} import main;"
    "gc.freeze();"
    "gc.enable();"
    "main(int(sys.argv[1]), int(sys.argv[2]))"
)
T = TypeVar("T")


class Started(NamedTuple):
    """A worker's process, and the host's end of its socket."""

    sock: socket.socket
    pid: int

    def drop(self) -> None:
        """Kill the process and what it started. For a process that no ``Worker`` uses."""
        self.sock.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def start(module: str) -> Started:
    """Start a process that runs ``main`` of ``module``. Raises OSError."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with theirs:
        try:
            return Started(ours, _spawn(module, theirs.fileno()))
        except OSError:
            ours.close()
            raise


class Worker(Generic[T]):
    """One worker process, which runs ``main`` of ``module``.

    Its messages must decode as ``union``. The process may have been ``started`` before. ``on_lost``
    is called once, with the reason, when the process is gone or sends something else. Raises
    OSError if the process can't be started.
    """

    def __init__(
        self,
        reactor: Reactor,
        module: str,
        union: object,
        on_message: Callable[[T], None],
        on_lost: Callable[[str], None],
        started: Started | None = None,
    ) -> None:
        self._reactor = reactor
        self._on_message = on_message
        self._on_lost = on_lost
        self._splitter = frames.Splitter(2 * frames.MAX_FRAME)
        self._decode: frames.Decoder[T] = frames.Decoder(union)
        #: Bytes that wait in the host to be sent.
        self.pending = bytearray()
        self._held = False
        self._sock, self.pid = started or start(module)
        self._pidfd = os.pidfd_open(self.pid)
        self._sock.setblocking(False)
        reactor.watch(self._sock.fileno(), self._ready)

    def send(self, message: msgspec.Struct) -> None:
        """Send or queue a message. If the process is gone, ``on_lost`` will say so."""
        if self._sock.fileno() >= 0:
            self.pending += frames.encode(message)
            self._flush()

    def send_with(self, message: msgspec.Struct, fds: Sequence[int]) -> None:
        """Send a short message with descriptors, after all that is queued. Raises OSError.

        This waits until the process has taken it.
        """
        self._sock.setblocking(True)
        try:
            self._sock.sendall(self.pending)
            self.pending.clear()
            frame = bytes(frames.encode(message))
            byte_count = socket.send_fds(self._sock, [frame], fds)
            self._sock.sendall(frame[byte_count:])
        finally:
            self._sock.setblocking(False)

    def read_rest(self) -> None:
        """Read and act on what the process has sent by now, or on much of it."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        for _ in range(MOST_READS):
            if self._sock.fileno() < 0 or not poll.poll(0):
                return
            self._ready()

    def _flush(self) -> None:
        with contextlib.suppress(OSError):
            while self.pending:
                byte_count = self._sock.send(self.pending[:READ_SIZE])
                del self.pending[:byte_count]
        self._watch()

    def _watch(self) -> None:
        reads = not self._held
        write = bool(self.pending)
        self._reactor.watch(self._sock.fileno(), self._ready, read=reads, write=write)

    def hold(self, *, held: bool) -> None:
        """Stop reading from the process, or go on."""
        if self._sock.fileno() >= 0:
            self._held = held
            self._watch()

    def _ready(self) -> None:
        if self.pending:
            self._flush()
        try:
            data = b"" if self._held else self._sock.recv(READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._take(data)
        elif not self._held:
            self._lose("")

    def _take(self, data: bytes) -> None:
        try:
            for payload in self._splitter.feed(data):
                self._on_message(self._decode(payload))
                if self._sock.fileno() < 0:
                    return
        except WireError as exc:
            self._lose(str(exc))

    def _lose(self, why: str) -> None:
        status = self._end(0.2 if not why else 0.0)
        self._on_lost(why or status)

    def kill(self) -> None:
        """Kill the process and what it started, at once."""
        self._end(0.0)

    def close(self) -> None:
        """Hang up, wait ``PATIENCE`` seconds for the process to clean up and end, then kill it.

        Messages that it sends until then are still acted on.
        """
        until = time.monotonic() + PATIENCE
        self._take_last_words(until)
        self._end(max(0.0, until - time.monotonic()))

    def _take_last_words(self, until: float) -> None:
        if self._sock.fileno() < 0 or self._held:
            return
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)
            while (seconds_left := until - time.monotonic()) > 0 and poll.poll(seconds_left * 1000):
                if not (data := self._sock.recv(READ_SIZE)):
                    return
                self._take(data)
                if self._sock.fileno() < 0:
                    return

    def _end(self, seconds: float) -> str:
        """Wait up to ``seconds`` for the process to end, then kill it; return how it ended."""
        if self._sock.fileno() < 0:
            return ""
        self._reactor.unwatch(self._sock.fileno())
        self._sock.close()
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        poll.poll(seconds * 1000)
        # Processes that it started are in its group, unless they made groups of their own.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        status = os.waitpid(self.pid, 0)[1]
        os.close(self._pidfd)
        code = os.waitstatus_to_exitcode(status)
        return f"signal {-code}" if code < 0 else f"exit status {code}"


def _spawn(module: str, fd: int) -> int:
    """Start a process with the host's interpreter and import path; return its pid.

    It inherits nothing else of the host but stderr and the variables in ``_EARLY``.
    """
    os.set_inheritable(fd, True)
    options = ["-E", "-P", "-X", "utf8", "-c", _BOOT.format(module=module)]
    argv = [sys.executable, *options, str(fd), str(os.getpid()), *import_path()]
    null = os.open(os.devnull, os.O_RDONLY)
    try:
        return os.posix_spawn(
            argv[0],
            argv,
            {name: value for name, value in os.environ.items() if name.startswith(_EARLY)},
            file_actions=[(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, 2, 1)],
            setsid=True,
            setsigmask=[],
            setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
        )
    finally:
        os.close(null)
