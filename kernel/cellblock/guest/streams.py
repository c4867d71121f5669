"""sys.stdout and sys.stderr of the guest.

A print costs a list append: text is collected and leaves in one frame, when there is much of it,
when the cell ends or shows something, or a moment after the first of it was written.
"""

from __future__ import annotations

import contextlib
import io
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from cellblock.guest.text import encodable
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cellblock.guest.channel import Channel

#: Text waits at most this long, in seconds: below what a reader notices.
LATENCY = 0.02
#: Characters that are sent at once.
BATCH = 1 << 16
#: Seconds that a thread waits for another that sends before it looks whether that one lives.
_PATIENCE = 0.5


class OutStream(io.TextIOBase):
    """A text stream whose other end is the front end.

    ``fileno`` is the real descriptor, for what writes below Python; that text takes the pipe.
    """

    def __init__(self, name: str, fd: int) -> None:
        super().__init__()
        self.name = f"<{name}>"
        self._fd = fd
        self.buffer = _Bytes(self)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Always utf-8."""
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        """Lone surrogates are spelled out."""
        return "backslashreplace"

    def writelines(self, lines: Iterable[str]) -> None:  # type: ignore[override]
        """Write each of ``lines``."""
        for line in lines:
            self.write(line)

    def fileno(self) -> int:
        """Return the descriptor that C code writes to."""
        return self._fd

    def writable(self) -> bool:
        """Say yes."""
        return True

    def isatty(self) -> bool:
        """Say no: progress bars then pick their plain form."""
        return False


def out_stream(name: messages.StreamName, fd: int, outlet: Outlet) -> OutStream:
    """Return ``sys.stdout`` or ``sys.stderr``.

    The outlet is held in a closure: cells get hold of the stream, and it knows the channel.
    """
    add, send = outlet.add, outlet.flush

    class Stream(OutStream):
        def write(self, text: str) -> int:
            """Collect ``text``; raises ``TypeError`` for anything else."""
            if not isinstance(text, str):
                raise TypeError(f"write() argument must be str, not {type(text).__name__}")
            add(name, text)
            return len(text)

        def flush(self) -> None:
            """Send what was written so far."""
            send()

    return Stream(name, fd)


class _Bytes(io.RawIOBase):
    """``sys.stdout.buffer``: bytes are read as utf-8."""

    def __init__(self, text: OutStream) -> None:
        self._text = text

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        blob = bytes(data)
        self._text.write(blob.decode("utf-8", "replace"))
        return len(blob)


class Outlet:
    """What both streams write to, so that their order is kept."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._parts: list[str] = []
        self._kind: messages.StreamName = "stdout"
        self._size = 0
        self._lock = threading.Lock()
        #: Which thread has it, as the OS kernel numbers them: Python's numbers are used again.
        self._held = self._lock, 0
        self._dirty = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, kind: messages.StreamName, text: str) -> None:
        """Collect ``text`` for the stream ``kind``."""
        if kind != self._kind:
            self.flush()
            self._kind = kind
        self._parts.append(text)
        self._size += len(text)
        if self._size >= BATCH:
            self.flush()
        elif not self._dirty.is_set():
            self._dirty.set()
            if self._thread is None:
                self._start()

    def flush(self) -> None:
        """Send what is collected."""
        with self.still():
            parts, self._parts, self._size = self._parts, [], 0
            self._dirty.clear()
            text = "".join(parts)
            for start in range(0, len(text), BATCH * 4):
                piece = encodable(text[start : start + BATCH * 4])
                self._channel.send(messages.Stream(name=self._kind, text=piece))

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """Have nothing half sent, for a fork, and by no other thread."""
        own = threading.get_native_id()
        if self._held[1] == own:  # a finaliser that prints, in the middle of it
            yield
            return
        mine = lock, _ = self._lock, own
        while not lock.acquire(timeout=_PATIENCE):
            # CPython 3.11 reaches no handler where no memory is left: a thread that ended so holds
            # the lock for ever.
            held, by = self._held
            if held is lock is self._lock and not os.path.exists(f"/proc/self/task/{by}"):  # noqa: PTH110
                self._lock = threading.Lock()
            mine = lock, _ = self._lock, own
        self._held = mine
        try:
            yield
        finally:
            self._held = lock, 0
            lock.release()

    def renew(self) -> None:
        """Begin anew in a copy, which has neither the thread nor what the original wrote."""
        self._parts, self._size = [], 0
        self._lock, self._dirty, self._thread = threading.Lock(), threading.Event(), None
        self._held = self._lock, 0

    def _start(self) -> None:
        thread = threading.Thread(target=self._drain, daemon=True, name="cellblock-output")
        try:
            thread.start()
        except (RuntimeError, MemoryError):
            self.flush()  # no room for one more: text leaves as it comes
            return
        self._thread = thread

    def _drain(self) -> None:
        while True:
            self._dirty.wait()
            time.sleep(LATENCY)
            try:
                self.flush()
            except OSError:
                return
