"""Tools that are functions of the program which has cells run: called in that program itself.

Sync functions run in threads, async ones on the loop that the session lives on, or ``apart`` on one
of their own thread. A call that is over its time, or that nobody waits for, is told to stop: Python
code does, an ``await`` is cancelled. Nothing ends what does not, in C code say: it holds its thread
until it ends by itself, what it returns is dropped, and there may be so many of these.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from cellblock.errors import PolicyError
from cellblock.host.services.tools import protocol, registry, results, runner
from cellblock.host.services.tools.calls import Answer
from cellblock.host.services.tools.runner import GRACE, CallRunner
from cellblock.wire import values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cellblock.host.services.tools.calls import Call
    from cellblock.host.services.tools.registry import RegisteredTool
    from cellblock.wire.messages import Tool

    CallMessage = protocol.Piece | protocol.Progress | protocol.Returned | protocol.Raised


#: Sync functions that run at once.
THREADS: Final = 32
#: Calls that did not stop when they were told to, from which on no other is begun.
MAX_STUCK: Final = 96
#: What errors call where such tools are from.
GIVEN: Final = "tools"


def register_functions(
    given: Iterable[Callable[..., Any]] | Mapping[str, Any],
) -> dict[str, RegisteredTool]:
    """Return functions as tools, under their own names or those of a mapping.

    Raises PolicyError for the first that is none.
    """
    pairs = given.items() if isinstance(given, Mapping) else ((_name(one), one) for one in given)
    try:
        return registry.register((name, name, function) for name, function in pairs)
    except registry.InvalidToolError as exc:
        what, value = exc.message, repr(exc.entry)
        raise PolicyError(what, file=GIVEN, key="", value=value, remedy=exc.remedy) from None


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


class InProcessTools:
    """A source of functions, on ``loop``. ``timeout`` are seconds of one call, ``most`` bytes."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        tools: Mapping[str, RegisteredTool],
        *,
        timeout: float | None,
        most: int,
        apart: bool = False,
    ) -> None:
        self._loop, self._tools, self._timeout, self._most = loop, tools, timeout, most
        self._apart = apart
        self._runs = CallRunner(tools, self._heard, threads=THREADS + MAX_STUCK, most=most)
        #: Sync calls that wait for a thread, and how many threads have one that is waited for.
        self._queue: OrderedDict[int, Call] = OrderedDict()
        self._blocking = 0
        self._calls: dict[int, tuple[Call, asyncio.TimerHandle | None]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        #: Calls that nobody waits for and that have not ended.
        self._left: set[int] = set()
        self._held: list[tuple[Call, Answer]] | None = None

    def open(
        self,
        on_tools: Callable[[tuple[Tool, ...]], None],
        on_failed: Callable[[PolicyError], None],
    ) -> None:
        """Tell which there are."""
        del on_failed  # they are known to be tools
        self._loop.call_soon(on_tools, tuple(one.tool for one in self._tools.values()))

    def hold_to(self, timeout: float | None, timeouts: Mapping[str, float]) -> None:
        """Have calls that begin now take no longer; what is named are the policy's own tools."""
        del timeouts
        self._timeout = timeout

    def begin(self, call: Call) -> None:
        """Run a call: in a thread, when one is free, or as a task."""
        if call.tool.is_async and len(self._left) < MAX_STUCK:
            self._start(call)
            return
        self._queue[call.number] = call
        self._pump()

    def cancel(self, number: int) -> None:
        """Stop a call; one that was not begun never is."""
        self._queue.pop(number, None)
        if (call := self._forget(number)) is not None:
            self._stop(call)
            # Later: others that wait may be cancelled with it.
            self._loop.call_soon(self._pump)

    def hold(self, *, held: bool) -> None:
        """Keep answers back, or give them."""
        waiting, self._held = self._held or [], [] if held else None
        for call, answer in waiting:
            call.answer(answer)

    def close(self) -> None:
        """Stop all calls."""
        self._queue.clear()
        for number in tuple(self._calls):
            self.cancel(number)
        self._runs.close()

    def ended(self, seconds: float = 0.0) -> bool:
        """Wait for async tools that ran ``apart``, once this is closed; say whether they ended."""
        return self._runs.ended(seconds)

    # --- calls --------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Begin what there is room for."""
        while self._queue and len(self._left) >= MAX_STUCK:
            _, call = self._queue.popitem(last=False)
            self._give(call, Answer(kind="WorkerLost", message=_stuck(len(self._left))))
        while self._queue and self._blocking < THREADS:
            self._start(self._queue.popitem(last=False)[1])

    def _start(self, call: Call) -> None:
        number, timer = call.number, None
        if self._timeout is not None:
            timer = self._loop.call_later(self._timeout, self._overdue, number, self._timeout)
        self._calls[number] = call, timer
        begin = protocol.Begin(number=number, tool=call.tool.name, arguments=call.arguments)
        self._blocking += not call.tool.is_async
        if call.tool.is_async and not self._apart:
            self._tasks[number] = task = self._loop.create_task(self._run(begin))
            # One that is cancelled before it has begun says nothing by itself.
            task.add_done_callback(lambda _: self._ended(number, _CANCELLED))
        else:
            self._runs.begin(begin)

    async def _run(self, begin: protocol.Begin) -> None:
        number, registered_ = begin.number, self._tools[begin.tool]
        runner.bind_progress(number, self._take)
        try:
            args, kwargs = values.arguments(begin.arguments)
            value = await registered_.function(*args, **kwargs)
            said = results.encode_result(number, value, self._most)
        except (Exception, asyncio.CancelledError) as exc:
            said = results.encode_error(number, exc, registered_.tool, bytes(begin.arguments))
        self._take(said)

    def _overdue(self, number: int, seconds: float) -> None:
        call = self._forget(number)
        if call is not None:
            message = f"it took longer than {seconds:g} s (tool_timeout)"
            self._give(call, Answer(kind="TimeoutError", message=message))
            self._stop(call)
            self._pump()

    def _stop(self, call: Call) -> None:
        """Tell a call to stop that was begun."""
        number = call.number
        self._left.add(number)
        if (task := self._tasks.get(number)) is not None:
            task.cancel()
            return
        self._runs.cancel(number)
        if call.tool.is_async:
            self._loop.call_later(GRACE, self._see_stopped, number)

    def _see_stopped(self, number: int) -> None:
        """Leave the loop that a call holds up, with whatever else is under way on it."""
        if number not in self._left:
            return
        self._runs.leave_loop()
        for call, _ in tuple(self._calls.values()):
            if call.tool.is_async:
                self._forget(call.number)
                self._left.add(call.number)
                self._give(call, Answer(kind="WorkerLost", message=_BESIDE))

    # --- answers ------------------------------------------------------------------------------

    def _heard(self, said: CallMessage) -> None:
        """Take what a call says, in the thread that runs it."""
        with contextlib.suppress(RuntimeError):  # the loop has closed
            self._loop.call_soon_threadsafe(self._take, said)

    def _take(self, said: CallMessage) -> None:
        match said:
            case protocol.Returned(number=number, value=value):
                self._ended(number, Answer(bytes(value)))
            case protocol.Raised(number=number, kind=kind, message=text):
                self._ended(number, Answer(kind=kind or "Exception", message=text))
            case protocol.Piece(number=number, text=text) if number in self._calls:
                self._calls[number][0].piece(text)
            case protocol.Progress(number=number, text=text) if number in self._calls:
                self._calls[number][0].tell(text)

    def _ended(self, number: int, answer: Answer) -> None:
        self._left.discard(number)
        self._tasks.pop(number, None)
        if (call := self._forget(number)) is not None:
            self._give(call, answer)
        self._pump()

    def _give(self, call: Call, answer: Answer) -> None:
        if self._held is not None:
            self._held.append((call, answer))
        else:
            call.answer(answer)

    def _forget(self, number: int) -> Call | None:
        """Have nobody wait for a call; return it if somebody did."""
        call, timer = self._calls.pop(number, (None, None))
        if timer is not None:
            timer.cancel()
        self._blocking -= call is not None and not call.tool.is_async
        return call


_BESIDE: Final = "a call beside it did not stop when it was told to"
_CANCELLED: Final = Answer(kind="CancelledError")


def _stuck(count: int) -> str:
    return f"it was not begun: {count} calls before it did not stop when they were told to"
