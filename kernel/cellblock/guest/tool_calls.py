"""Calls of tools under way: who waits for which answer.

No thread reads for others for good. The main thread reads while it waits; while it runs code, one
of the threads that wait reads for all of them; an event loop reads while something in it waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import select
import threading
from asyncio import _get_running_loop
from typing import TYPE_CHECKING, Any, Final, Self

from cellblock.guest.output import current_subshell
from cellblock.wire import messages, values

if TYPE_CHECKING:
    from collections.abc import Callable

    import msgspec

    from cellblock.guest.channel import Channel
    from cellblock.guest.loop import ChannelReaders


#: Seconds after which a thread that waits, or that reads for others, looks whether it still must.
LOOK: Final = 0.5
LOOK_READING: Final = 0.02


class ToolError(Exception):
    """A tool failed or could not be called: ``tool`` names it, ``kind`` and ``message`` say how."""

    def __init__(self, tool: str, kind: str = "", message: str = "") -> None:
        super().__init__(tool, kind, message)
        self.tool, self.kind, self.message = tool, kind, message

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.tool, self.kind, self.message)))


class _Call:
    """One call; ``wake`` is called, in any thread, when it is answered."""

    __slots__ = ("result", "tool", "wake")

    def __init__(self, tool: str, wake: Callable[[], None]) -> None:
        self.tool, self.wake = tool, wake
        self.result: messages.ToolResult | None = None

    def wake_caller(self) -> None:
        with contextlib.suppress(Exception):  # a loop that a cell has spoilt
            self.wake()

    def due(self) -> bool:
        return self.result is not None

    def value(self) -> Any:
        result = self.result
        if result is None:
            raise ToolError(self.tool, "RuntimeError", "its answer was not waited for")
        if result.kind:
            raise ToolError(self.tool, result.kind, result.message)
        return values.decode(result.value)


def _nothing() -> None: ...


class Calls:
    """All calls of one guest. Any thread may call."""

    def __init__(self, channel: Channel, readers: ChannelReaders, most: int) -> None:
        self._channel, self.readers, self._most = channel, readers, most
        self._ids = itertools.count(1)
        self._in_flight: dict[int, _Call] = {}
        #: Of one thread more than once: a cell's own code may run in between, as a finalizer.
        self._counting = threading.RLock()
        self._leader = threading.Lock()
        #: Threads that wait while another one reads.
        self._followers: dict[threading.Event, None] = {}
        channel.on_result, channel.on_leave = self._on_result, self._promote

    def reset_after_fork(self) -> None:
        """Forget, in a copy, the calls whose answers only the original gets."""
        self._in_flight.clear()
        self._followers.clear()
        self._counting, self._leader = threading.RLock(), threading.Lock()

    # --- calling ------------------------------------------------------------------------------

    def block(self, tool: str, arguments: msgspec.Raw) -> Any:
        """Call and wait. Raises ToolError; an interrupt withdraws the call."""
        main = self._channel.is_main()
        event = None if main else threading.Event()
        call = _Call(tool, _nothing if event is None else event.set)
        number = next(self._ids)
        try:
            self._send(number, call, arguments)
            while call.result is None:
                if event is None:
                    self._channel.wait(call.due)
                else:
                    self.wait_beside_main(call.due, event)
        finally:
            self._end(number)
        return call.value()

    async def wait(self, tool: str, arguments: msgspec.Raw) -> Any:
        """Call, and let the loop go on meanwhile. Raises ToolError; to cancel it withdraws it."""
        loop, due = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            if _get_running_loop() is loop:  # None in a foreign thread
                due.set()
            else:
                with contextlib.suppress(RuntimeError):  # it has closed
                    loop.call_soon_threadsafe(due.set)

        call, number = _Call(tool, wake), next(self._ids)
        try:
            self.readers.begin(loop)
            try:
                self._send(number, call, arguments)
                while call.result is None:
                    await due.wait()
                    due.clear()
            finally:
                self.readers.end(loop)
        finally:
            self._end(number)
        return call.value()

    def _send(self, number: int, call: _Call, arguments: msgspec.Raw) -> None:
        with self._counting:
            if len(self._in_flight) >= self._most:
                said = f"{self._most:,} calls are under way already (tool_max_in_flight)"
                raise ToolError(call.tool, "TooManyCalls", said)
            self._in_flight[number] = call
        subshell = current_subshell.get()
        self._channel.send(
            messages.ToolCall(id=number, name=call.tool, arguments=arguments, subshell=subshell)
        )

    def _end(self, number: int) -> None:
        """Stop expecting an answer; tell the host if there was none."""
        if number not in self._in_flight:
            return
        try:
            self._channel.send(messages.ToolWithdrawn(id=number))
        finally:  # after it: another call takes its place only when the host knows
            self._in_flight.pop(number, None)

    # --- answers ------------------------------------------------------------------------------

    def _on_result(self, result: messages.ToolResult) -> Callable[[], None]:
        """Hand an answer on; return what wakes whoever waits for it, if any."""
        call = self._in_flight.pop(result.id, None)
        if call is None:
            return _nothing
        call.result = result
        return call.wake_caller

    def wait_beside_main(self, due: Callable[[], bool], event: threading.Event) -> None:
        """Wait in a thread that is not the main one until something is ``due``; ``event`` wakes it.

        It reads for all that wait if nobody does.
        """
        while not due():
            if self._channel.main_waits or not self._leader.acquire(blocking=False):
                self._followers[event] = None
                event.wait(LOOK)
                event.clear()
                self._followers.pop(event, None)
                continue
            try:
                self._lead(due)
            finally:
                self._leader.release()
                self._promote()

    def _lead(self, due: Callable[[], bool]) -> None:
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        while not due() and not self._channel.main_waits:
            if poll.poll(LOOK_READING * 1000):
                self._channel.read()

    def read_now(self) -> None:
        """Read what has arrived, in any thread, unless somebody reads already."""
        if self._leader.acquire(blocking=False):
            try:
                while not self._channel.main_waits and self._channel.has_arrived():
                    self._channel.read()
            finally:
                self._leader.release()
                self._promote()

    def _promote(self) -> None:
        """Make one of the waiting threads the reader, unless there is one."""
        # Another thread may change it meanwhile: it looks itself.
        with contextlib.suppress(RuntimeError, StopIteration):
            next(iter(self._followers)).set()


#: Milliseconds after which whoever has the turn is taken to be gone.
_TIMEOUT: Final = 5_000


class Turns:
    """A lock of threads and forked processes, as a context. Raises OSError where it can't be made.

    Whoever has read the byte in a pipe has the turn, and writes it back. A lock of Python's does
    not reach processes, and files can't be locked here. One that was killed while it had its turn
    is not waited for.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.__exit__()

    def close(self) -> None:
        """Close it here; whoever else shares it goes on."""
        for fd in (self._read, self._write):
            with contextlib.suppress(OSError):
                os.close(fd)

    def _is_free(self, milliseconds: int) -> bool:
        poll = select.poll()  # one for each thread: they can't be shared
        poll.register(self._read, select.POLLIN)
        return bool(poll.poll(milliseconds))

    def __enter__(self) -> Self:
        while self._is_free(_TIMEOUT):
            with contextlib.suppress(BlockingIOError):  # another was quicker
                os.read(self._read, 1)
                break
        return self

    def __exit__(self, *_: object) -> None:
        # No second byte: who was taken to be gone may come back.
        if not self._is_free(0):
            os.write(self._write, b".")
