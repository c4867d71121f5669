"""The host's end of a process of its own (tools' worker, relay): socket, process, how it ends."""

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
#: Reads of what a process has said, one after the other.
MOST_READS = 16
#: Seconds that a worker whose host hangs up has for its own clean-up.
PATIENCE = 1.0
#: Set before the interpreter reads the first byte; everything else is told over the socket.
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
    """A process, and the host's end of its socket."""

    sock: socket.socket
    pid: int

    def drop(self) -> None:
        """End it, and what it started: no ``Worker`` has it."""
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
    """One process, which runs ``main`` of ``module`` and says what decodes as ``union``.

    It may have been ``started`` before. ``on_lost`` is called once, with why, when it is gone or
    speaks nonsense. Raises OSError where it can't be started.
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
        self._reactor, self._on_message, self._on_lost = reactor, on_message, on_lost
        self._splitter = frames.Splitter(2 * frames.MAX_FRAME)
        self._decode: frames.Decoder[T] = frames.Decoder(union)
        #: Bytes that it has not taken yet.
        self.pending = bytearray()
        self._held = False
        self._sock, self.pid = started or start(module)
        self._pidfd = os.pidfd_open(self.pid)
        self._sock.setblocking(False)
        reactor.watch(self._sock.fileno(), self._ready)

    def send(self, message: msgspec.Struct) -> None:
        """Queue a message; of one that is gone we hear by its hanging up."""
        if self._sock.fileno() >= 0:
            self.pending += frames.encode(message)
            self._flush()

    def send_with(self, message: msgspec.Struct, fds: Sequence[int]) -> None:
        """Send a short message and descriptors, behind all that waits. Raises OSError."""
        self._sock.setblocking(True)
        try:
            self._sock.sendall(self.pending)
            self.pending.clear()
            frame = bytes(frames.encode(message))
            sent = socket.send_fds(self._sock, [frame], fds)
            self._sock.sendall(frame[sent:])
        finally:
            self._sock.setblocking(False)

    def read_rest(self) -> None:
        """Take what it has said until now, or much of it, at once."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        for _ in range(MOST_READS):
            if self._sock.fileno() < 0 or not poll.poll(0):
                return
            self._ready()

    def _flush(self) -> None:
        with contextlib.suppress(OSError):
            while self.pending:
                sent = self._sock.send(self.pending[:READ_SIZE])
                del self.pending[:sent]
        self._watch()

    def _watch(self) -> None:
        read, write = not self._held, bool(self.pending)
        self._reactor.watch(self._sock.fileno(), self._ready, read=read, write=write)

    def hold(self, *, held: bool) -> None:
        """Leave what it says where it is, or listen again."""
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
        """End it and what it started, at once."""
        self._end(0.0)

    def close(self) -> None:
        """Hang up, give it a moment to clean up behind itself, and take what it says till then."""
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
            while (left := until - time.monotonic()) > 0 and poll.poll(left * 1000):
                if not (data := self._sock.recv(READ_SIZE)):
                    return
                self._take(data)
                if self._sock.fileno() < 0:
                    return

    def _end(self, seconds: float) -> str:
        """End it; return how it ended."""
        if self._sock.fileno() < 0:
            return ""
        self._reactor.unwatch(self._sock.fileno())
        self._sock.close()
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        poll.poll(seconds * 1000)
        # What it started is in its session, and of its group unless it made one of its own.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        status = os.waitpid(self.pid, 0)[1]
        os.close(self._pidfd)
        code = os.waitstatus_to_exitcode(status)
        return f"signal {-code}" if code < 0 else f"exit status {code}"


def _spawn(module: str, fd: int) -> int:
    """Start a process with the host's own interpreter and path; nothing else of it is inherited."""
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
