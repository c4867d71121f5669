"""Tools that are functions of a program which uses the Python API: they run in that program.

Sync functions run in threads. Async ones run on the session's loop, or with ``own_loop`` on one in
a thread. A call that is over its time, or withdrawn, is told to stop: Python code
raises ``Cancelled``, a task is cancelled. A call that does not stop, as in C code, can't be killed
here: it keeps its thread until it ends, its result is dropped, and beyond ``MAX_STUCK`` such calls
no other begins.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from cellblock.errors import PolicyError
from cellblock.host.services.tools import registry, worker
from cellblock.host.services.tools.calls import Answer
from cellblock.host.services.tools.runner import GRACE, CallRunner

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from cellblock.host.services.tools.calls import Call
    from cellblock.host.services.tools.registry import RegisteredTool
    from cellblock.wire.messages import Tool

    CallMessage = worker.Piece | worker.Progress | worker.Answered


#: Sync functions that run at once.
THREADS: Final = 32
#: Calls that did not stop when told to; with so many of them no other begins.
MAX_STUCK: Final = 96
#: What errors name as the source of such tools.
GIVEN: Final = "tools"
_LOOP_BLOCKED: Final = "a call beside it did not stop when it was told to"


def register_functions(
    given: Iterable[Callable[..., Any]] | Mapping[str, Any],
) -> dict[str, RegisteredTool]:
    """Return functions as tools, under their own names or a mapping's.

    Raises PolicyError for the first one that can't be a tool.
    """
    if isinstance(given, Mapping):
        pairs = [(name, function) for name, function in given.items()]
    else:
        pairs = [(str(getattr(one, "__name__", type(one).__name__)), one) for one in given]
    try:
        return registry.register((name, name, function) for name, function in pairs)
    except registry.InvalidToolError as exc:
        what, value = exc.message, repr(exc.entry)
        raise PolicyError(what, file=GIVEN, key="", value=value, remedy=exc.remedy) from None


class InProcessTools:
    """A source of functions. ``timeout`` is a call's, in seconds; ``max_bytes`` bounds a result."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        tools: Mapping[str, RegisteredTool],
        *,
        timeout: float | None,
        max_bytes: int,
        own_loop: bool = False,
    ) -> None:
        self._loop, self._tools, self._timeout, self._has_own_loop = loop, tools, timeout, own_loop
        self._runner = CallRunner(
            tools,
            self._take_from_thread,
            threads=THREADS + MAX_STUCK,
            max_bytes=max_bytes,
            loop=None if own_loop else loop,
        )
        #: Sync calls that wait for a thread, and how many in a thread are still wanted.
        self._queue: OrderedDict[int, Call] = OrderedDict()
        self._blocking = 0
        self._calls: dict[int, tuple[Call, asyncio.TimerHandle | None]] = {}
        #: Calls that were told to stop and have not ended.
        self._stuck: set[int] = set()
        #: Answers that are kept back; None while none are.
        self._held: list[tuple[Call, Answer]] | None = None

    def open(
        self, on_tools: Callable[[tuple[Tool, ...]], None], on_failed: Callable[[PolicyError], None]
    ) -> None:
        """Report the tools."""
        del on_failed  # they are known to be tools
        self._loop.call_soon(on_tools, tuple(one.tool for one in self._tools.values()))

    def narrow_to(self, timeout: float | None, timeouts: Mapping[str, float]) -> None:
        """Set the time limit of calls that begin now; ``timeouts`` are of the policy's tools."""
        del timeouts
        self._timeout = timeout

    def begin(self, call: Call) -> None:
        """Run a call: as a task, or in a thread as soon as one is free."""
        if call.tool.is_async and len(self._stuck) < MAX_STUCK:
            self._start(call)
            return
        self._queue[call.number] = call
        self._pump()

    def cancel(self, number: int) -> None:
        """Stop a call, or forget it if it has not begun."""
        self._queue.pop(number, None)
        if (call := self._forget(number)) is not None:
            self._stop(call)
            # Not now: the other calls of a guest that ended are cancelled next.
            self._loop.call_soon(self._pump)

    def hold(self, *, held: bool) -> None:
        """Keep answers back, or let them go again."""
        waiting, self._held = self._held or [], [] if held else None
        for call, answer in waiting:
            call.answer(answer)

    def close(self) -> None:
        """Stop all calls."""
        self._queue.clear()
        for number in tuple(self._calls):
            self.cancel(number)
        self._runner.close()

    def ended(self, seconds: float = 0.0) -> bool:
        """Wait for a loop of its own, after ``close``; return whether it has ended."""
        return self._runner.ended(seconds)

    def _pump(self) -> None:
        """Begin the calls that there is room for."""
        while self._queue and len(self._stuck) >= MAX_STUCK:
            _, call = self._queue.popitem(last=False)
            stuck = f"{len(self._stuck)} calls before it did not stop when they were told to"
            why = f"it was not begun: {stuck}"
            self._give(call, Answer(kind="WorkerLost", message=why))
        while self._queue and self._blocking < THREADS:
            self._start(self._queue.popitem(last=False)[1])

    def _start(self, call: Call) -> None:
        number, timer = call.number, None
        if self._timeout is not None:
            timer = self._loop.call_later(self._timeout, self._overdue, number, self._timeout)
        self._calls[number] = call, timer
        self._blocking += not call.tool.is_async
        self._runner.begin(
            worker.Begin(number=number, tool=call.tool.name, arguments=call.arguments)
        )

    def _overdue(self, number: int, seconds: float) -> None:
        call = self._forget(number)
        if call is not None:
            message = f"it took longer than {seconds:g} s (tool_timeout)"
            self._give(call, Answer(kind="TimeoutError", message=message))
            self._stop(call)
            self._pump()

    def _stop(self, call: Call) -> None:
        """Tell a running call to stop."""
        self._stuck.add(call.number)
        self._runner.cancel(call.number)
        if call.tool.is_async and self._has_own_loop:
            self._loop.call_later(GRACE, self._see_stopped, call.number)

    def _see_stopped(self, number: int) -> None:
        """If a call still blocks the loop, leave that, with all calls that run on it."""
        if number not in self._stuck:
            return
        self._runner.leave_loop()
        for call, _ in tuple(self._calls.values()):
            if call.tool.is_async:
                self._forget(call.number)
                self._stuck.add(call.number)
                self._give(call, Answer(kind="WorkerLost", message=_LOOP_BLOCKED))

    def _take_from_thread(self, message: CallMessage) -> None:
        """Pass a call's message on from the thread that runs it."""
        with contextlib.suppress(RuntimeError):  # the loop has closed
            self._loop.call_soon_threadsafe(self._take, message)

    def _take(self, message: CallMessage) -> None:
        match message:
            case worker.Piece(number=number, text=text) if number in self._calls:
                self._calls[number][0].piece(text)
            case worker.Progress(number=number, text=text) if number in self._calls:
                self._calls[number][0].tell(text)
            case worker.Answered(number=number, answer=answer):
                self._stuck.discard(number)
                if (call := self._forget(number)) is not None:
                    self._give(call, answer)
                self._pump()

    def _give(self, call: Call, answer: Answer) -> None:
        if self._held is not None:
            self._held.append((call, answer))
        else:
            call.answer(answer)

    def _forget(self, number: int) -> Call | None:
        """Stop waiting for a call; return it if it was still wanted."""
        call, timer = self._calls.pop(number, (None, None))
        if timer is not None:
            timer.cancel()
        self._blocking -= call is not None and not call.tool.is_async
        return call
