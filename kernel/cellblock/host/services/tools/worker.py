"""A worker: a trusted process that runs the operator's tools, operations or calls of models.

Each of these three has a worker of its own, as have the operator's MCP servers, and a
``WorkerProvider``, the host's end of it. A worker may hang or crash: a call that is over its time
is told to stop (``Cancel``), and if it has not stopped ``GRACE`` seconds later, the worker is
killed and the next call starts another. Calls that were running in it are answered
``WorkerLost``.

The process holds no key of Jupyter's, and ends with the host, however that ends. What tools print
goes to the host's stderr. ``registry`` loads the tools, which validate their arguments; ``runner``
runs calls.
"""

from __future__ import annotations

import gc
import os
import socket
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import structs

from cellblock.errors import PolicyError
from cellblock.host.guests.spawn import end_with_host, protect_host
from cellblock.host.guests.worker_process import Worker
from cellblock.host.services.tools.calls import Answer
from cellblock.host.services.tools.worker_messages import (
    Answered,
    Begin,
    Cancel,
    FromWorker,
    KeySent,
    Load,
    Loaded,
    LoadFailed,
    Progress,
    ToWorker,
    WorkerSettings,
)
from cellblock.wire import frames
from cellblock.wire.messages import Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cellblock.host.guests.worker_process import Started
    from cellblock.host.reactor import Reactor, Timer
    from cellblock.host.services.tools.calls import Call


# --- the host's end -----------------------------------------------------------------------------

#: Sync tools that run at once.
THREADS: Final = 32
#: Seconds that a worker has to import the tools.
LOADING: Final = 60.0
#: Seconds that a call has to end after it was told to stop; and one that was withdrawn, if the
#: policy sets no time limit.
GRACE: Final = 1.0
WITHDRAWN_GRACE: Final = 30.0
#: Seconds beyond its time that a call gets at most while its answer may wait to be read.
MAX_EXTENSION: Final = 600.0
#: Bytes that calls in the worker may hold before no other begins; a call's besides its arguments.
MAX_HELD: Final = 96 * 2**20
_CALL_OVERHEAD: Final = 4_096
#: Workers in a row that may end while they import the tools.
MAX_FAILED_STARTS: Final = 3
#: Why a tool is called no longer that is another one since it was started again.
CHANGED: Final = "it is not the tool that it was at the start: restart the kernel"
#: Kinds of answers of calls that stopped because they were told to.
_STOPPED: Final = ("Cancelled", "CancelledError")


@dataclass(slots=True, eq=False)
class _RunningCall:
    """A call in the worker. ``limit`` is its time in seconds, set by the policy field ``setting``.

    ``waited_for``: the answer is still wanted. ``was_cancelled``: it was told to stop.
    ``extension``: seconds beyond its time, given because its answer could not be read.
    """

    call: Call
    limit: float | None
    setting: str
    waited_for: bool = True
    was_cancelled: bool = False
    extension: float = 0.0
    timer: Timer | None = None

    @property
    def size(self) -> int:
        """The bytes that it takes, roughly."""
        return len(bytes(self.call.arguments)) + _CALL_OVERHEAD

    def stop_timer(self) -> None:
        """Let its time run out no more."""
        if self.timer is not None:
            self.timer.cancel()

    def answer(self, answer: Answer) -> None:
        """Give the answer, if it is wanted; a call that was told to stop answers why."""
        self.stop_timer()
        if self.waited_for:
            self.waited_for = False
            stopped = self.was_cancelled and answer.kind in _STOPPED
            self.call.answer(self.too_long() if stopped else answer)

    def too_long(self) -> Answer:
        """Return the answer of a call that took too long."""
        message = f"it took longer than {self.limit or 0:g} s ({self.setting})"
        return Answer(kind="TimeoutError", message=message)


def load_ahead(started: Started, settings: WorkerSettings) -> None:
    """Have a worker load its tools, for a ``WorkerProvider`` with the same settings.

    A kernel does so as soon as it knows its policy: the tools are imported while the host imports
    what makes a session. Waits until the worker has taken what it is told. Raises OSError.
    """
    started.sock.sendall(frames.encode(_load(settings)))


def _load(settings: WorkerSettings) -> Load:
    return Load(settings=settings, environment=dict(os.environb))


class WorkerProvider:
    """A source of tools that run in a worker, the first of which may have been started ahead."""

    def __init__(
        self,
        reactor: Reactor,
        settings: WorkerSettings,
        ahead: Started | None = None,
    ) -> None:
        self._reactor, self._settings, self._ahead = reactor, settings, ahead
        self._worker: Worker[FromWorker] | None = None
        #: Whether it has imported the tools, and the timer until it has to.
        self._loaded, self._failed_starts = False, 0
        self._loading: Timer | None = None
        #: Why there are no tools, for good.
        self._failure = ""
        self._queue: deque[Call] = deque()
        self._runs: dict[int, _RunningCall] = {}
        #: Nothing is wanted any more but which keys were sent.
        self._is_closing = False
        #: Threads that run calls, and bytes that calls hold.
        self._blocking = self._held = 0
        #: Answers are not read now; or were not, until a moment ago.
        self._paused = False
        self._catching_up: Timer | None = None
        #: Calls that took too long and were told to stop: no other begins meanwhile, since the
        #: worker may have to be killed.
        self._stopping: set[int] = set()
        #: The tools as they were at first, and names of those that a later worker has otherwise.
        self._tools, self._changed = frozenset[Tool](), frozenset[str]()
        self._on_tools: Callable[[tuple[Tool, ...]], None] | None = None
        self._on_failed: Callable[[PolicyError], None] | None = None

    def open(
        self, on_tools: Callable[[tuple[Tool, ...]], None], on_failed: Callable[[PolicyError], None]
    ) -> None:
        """Start; exactly one of the two is called."""
        self._on_tools, self._on_failed = on_tools, on_failed
        self._start()

    def expect(self, tools: tuple[Tool, ...]) -> None:
        """Take the tools of a worker with the same settings as known, instead of ``open``.

        The worker starts with the first call, which waits until it has imported them.
        """
        self._tools = _compared(tools)

    def narrow_to(self, timeout: float | None, timeouts: dict[str, float]) -> None:
        """Set the time limits; the worker goes on with what it has imported."""
        self._settings = structs.replace(self._settings, timeout=timeout, timeouts=timeouts)

    # --- calls --------------------------------------------------------------------------------

    def begin(self, call: Call) -> None:
        """Run a call as soon as a worker has room."""
        self._queue.append(call)
        if self._worker is None:
            self._start()
        self._pump()

    def cancel(self, number: int) -> None:
        """Stop a call."""
        if (run := self._runs.get(number)) is None:
            self._queue = deque(call for call in self._queue if call.number != number)
            return
        # Its timer goes on: a tool that does not stop in time costs the worker.
        run.waited_for = False
        self._cancel_run(run)
        if run.timer is None:
            self._time(run, WITHDRAWN_GRACE, self._replace)

    def hold(self, *, held: bool) -> None:
        """Read no answers for now, or read them again."""
        self._paused = held
        if self._catching_up is not None:
            self._catching_up.cancel()
        self._catching_up = None if held else self._reactor.call_later(GRACE, self._on_caught_up)
        # What a worker says while it imports is always read.
        if self._worker is not None and self._loaded:
            self._worker.hold(held=held)

    def _on_caught_up(self) -> None:
        self._catching_up = None

    def give_up(self, why: str) -> None:
        """Answer all calls ``WorkerLost``, and end the worker."""
        answer = Answer(kind="WorkerLost", message=why)
        for run in tuple(self._runs.values()):
            run.answer(answer)
        for call in tuple(self._queue):
            call.answer(answer)
        self.close()

    def close(self) -> None:
        """End the worker."""
        self._failure = "the session has ended"
        self._forget_loading()
        for run in self._runs.values():
            run.stop_timer()
        self._queue.clear()
        self._is_closing = True
        if self._worker is not None:
            self._worker.close()
            self._worker = None
        self._runs.clear()

    def _pump(self) -> None:
        """Begin the calls that the worker has room for; sync tools need a free thread."""
        waiting, self._queue = self._queue, deque()
        if self._failure:
            for call in waiting:
                call.answer(Answer(kind="WorkerLost", message=self._failure))
            return
        for call in waiting:
            if self._loaded and call.tool.name in self._changed:
                call.answer(Answer(kind="WorkerLost", message=CHANGED))
                continue
            has_thread = call.tool.is_async or self._blocking < THREADS
            may_begin = self._loaded and not self._stopping and self._held < MAX_HELD
            if may_begin and has_thread:
                self._run(call)
            else:
                self._queue.append(call)

    def _run(self, call: Call) -> None:
        name = call.tool.name
        limit = self._settings.timeouts.get(name, self._settings.timeout)
        self._runs[call.number] = run = _RunningCall(call, limit, self._settings.limit)
        self._held += run.size
        self._blocking += not call.tool.is_async
        if limit is not None:
            self._time(run, limit, self._overdue)
        if self._worker is not None:
            self._worker.send(
                Begin(
                    number=call.number,
                    tool=name,
                    arguments=call.arguments,
                    checks_only=call.checks_only,
                )
            )
            self._reactor.expect()

    def _overdue(self, run: _RunningCall) -> None:
        """Tell a call to stop; replace the worker if it does not."""
        if not run.waited_for:
            self._replace(run)
            return
        run.answer(run.too_long())
        self._stopping.add(run.call.number)
        self._cancel_run(run)
        self._time(run, GRACE, self._replace)

    def _time(
        self, run: _RunningCall, seconds: float, action: Callable[[_RunningCall], None]
    ) -> None:
        """Call ``action`` after ``seconds``, or later while the call's answer may be unread."""

        def due() -> None:
            if (self._paused or self._catching_up is not None) and run.extension < MAX_EXTENSION:
                run.extension += GRACE
                self._cancel_run(run)
                self._time(run, GRACE, action)
            else:
                action(run)

        run.timer = self._reactor.call_later(seconds, due)

    def _cancel_run(self, run: _RunningCall) -> None:
        if self._worker is not None and not run.was_cancelled:
            run.was_cancelled = True
            self._worker.send(Cancel(number=run.call.number))

    def _replace(self, run: _RunningCall) -> None:
        if self._worker is not None:
            self._worker.kill()
            name = run.call.tool.name
            self._lost(f"the tools' worker was ended: {name} did not stop when it was told to")

    # --- its process ---------------------------------------------------------------------------

    def _start(self) -> None:
        if self._failure:
            return
        ahead, self._ahead = self._ahead, None
        try:
            self._worker = started = Worker(
                self._reactor, __name__, FromWorker, self._on_message, self._on_lost, ahead
            )
        except OSError as exc:
            self._fail("", f"no process could be started for them: {exc.strerror}", "")
            return
        self._loading = self._reactor.call_later(LOADING, self._too_slow)
        if ahead is None:
            started.send(_load(self._settings))

    def _too_slow(self) -> None:
        if self._worker is not None:
            self._worker.kill()
        self._fail("", f"importing them took longer than {LOADING:g} s", "Import less in them.")

    def _on_message(self, message: FromWorker) -> None:
        if self._is_closing and not isinstance(message, KeySent):
            return
        match message:
            case Progress(number=number, text=text):
                if (run := self._runs.get(number)) is not None and run.waited_for:
                    run.call.tell(text)
            case KeySent(number=number, use=use):
                if (run := self._runs.get(number)) is not None:  # wanted still, or not
                    run.call.note(use)
            case Answered(number=number, answer=answer):
                self._answer(number, answer)
            case Loaded(tools=tools):
                self._on_loaded(tools)
            case LoadFailed():
                if self._worker is not None:
                    self._worker.kill()
                self._fail(message.entry, message.message, message.remedy)

    def _answer(self, number: int, answer: Answer) -> None:
        run = self._runs.pop(number, None)
        self._stopping.discard(number)
        if run is not None:
            self._held -= run.size
            self._blocking -= not run.call.tool.is_async
            run.answer(answer)
            self._pump()

    def _on_loaded(self, tools: tuple[Tool, ...]) -> None:
        self._forget_loading()
        self._loaded, self._failed_starts = True, 0
        if self._paused and self._worker is not None:
            self._worker.hold(held=True)
        found = _compared(tools)
        if self._on_tools is not None:
            self._tools = found
            on_tools, self._on_tools = self._on_tools, None
            on_tools(tools)
        self._changed = frozenset(tool.name for tool in self._tools - found)
        self._pump()

    def _on_lost(self, how: str) -> None:
        if not self._loaded:
            self._failed_starts += 1
        if self._failed_starts >= MAX_FAILED_STARTS or (not self._loaded and self._on_tools):
            message = f"their worker ended while it imported them: {how}"
            self._fail("", message, "Look at the host's stderr for what it said.")
        else:
            self._lost(f"the tools' worker ended: {how}")

    def _lost(self, why: str) -> None:
        """Answer the running calls ``WorkerLost``; run those that wait in a new worker."""
        self._forget_loading()
        self._worker, self._loaded, self._blocking, self._held = None, False, 0, 0
        self._stopping.clear()
        runs, self._runs = self._runs, {}
        for run in runs.values():
            run.answer(Answer(kind="WorkerLost", message=why))
        # An answered caller may have called again, and so started one.
        if self._queue and self._worker is None:
            self._start()

    def _forget_loading(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
            self._loading = None

    def _fail(self, entry: str, message: str, remedy: str) -> None:
        """Give up: there are no tools in this session."""
        self._failure = f"no tool can be called: {message}"
        self._lost(self._failure)
        self._pump()
        if self._on_failed is not None and self._on_tools is not None:
            of_servers = bool(self._settings.servers)
            value = repr(entry or list(self._settings.servers or self._settings.entries))
            file, key = self._settings.policy, "tools.mcp" if of_servers else "tools"
            error = PolicyError(message, file=file, key=key, value=value, remedy=remedy)
            self._on_tools = None
            self._on_failed(error)


def _compared(tools: tuple[Tool, ...]) -> frozenset[Tool]:
    """Return what must be the same of tools in each of a provider's workers."""
    return frozenset(structs.replace(tool, doc="") for tool in tools)


# --- the process ------------------------------------------------------------------------------


def main(fd: int, host: int) -> None:
    """Load the tools, and run calls until the host, whose pid is given, hangs up."""
    end_with_host(host)
    protect_host()
    sock = socket.socket(fileno=fd)
    sock.set_inheritable(False)
    messages = _messages(sock)
    load = next(messages, None)
    if not isinstance(load, Load):
        return
    os.environb.update(load.environment)
    gc.disable()  # none of what is imported is garbage
    # Only now: both import what reads the environment.
    from cellblock.host.services.tools import registry, runner  # noqa: PLC0415 - see above

    settings, lock = load.settings, threading.Lock()

    def send(message: msgspec.Struct) -> None:
        frame = frames.encode(message)
        # Where the host has hung up, nobody waits for it, and the loop below ends.
        with lock, suppress(BrokenPipeError, ConnectionResetError):
            sock.sendall(frame)

    try:
        if settings.servers:  # by the SDK, which is an extra
            tools = import_module(f"{__package__}.mcp_servers").connect(settings.servers)
        elif settings.operations is not None:
            # Its imports would take each other worker 25 ms.
            from cellblock.host.services.operations import loading  # noqa: PLC0415 - see above

            tools = loading.load(settings.operations)
        else:
            tools = registry.load(settings.entries)
    except registry.InvalidToolError as exc:
        send(LoadFailed(entry=exc.entry, message=exc.message, remedy=exc.remedy))
        return
    send(Loaded(tools=tuple(one.tool for one in tools.values())))
    gc.freeze()
    gc.enable()
    calls = runner.CallRunner(tools, send, threads=THREADS, max_bytes=settings.max_bytes)
    for message in messages:
        match message:
            case Begin():
                calls.begin(message)
            case Cancel(number=number):
                calls.cancel(number)


READ_SIZE: Final = 1 << 16


def _messages(sock: socket.socket) -> Iterator[ToWorker]:
    decode: frames.Decoder[ToWorker] = frames.Decoder(ToWorker)
    splitter = frames.Splitter(2 * frames.MAX_FRAME)
    with suppress(ConnectionResetError):  # the host hung up without reading all it was sent
        while data := sock.recv(READ_SIZE):
            for payload in splitter.feed(data):
                yield decode(payload)
