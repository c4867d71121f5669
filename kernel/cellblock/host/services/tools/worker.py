"""A worker: a trusted process that runs the operator's tools, MCP servers, operations or models.

Each of these four has a worker of its own, and a ``WorkerProvider``, which is the host's end of it.
The states of a worker::

    none --> loading --> loaded --> none (lost or killed)
     first    Load        Loaded      calls in it are answered WorkerLost;
     call                             the next call starts another

A worker may hang or crash. A call that exceeds its time is told to stop (``Cancel``); if it has not
stopped ``GRACE`` seconds later, the worker is killed.

The process doesn't have Jupyter's key, and ends with the host, however that ends. Output that tools
print goes to the host's stderr. ``registry`` loads the tools, which validate their arguments;
``runner`` runs calls.
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

#: Sync tools that run at the same time.
THREADS: Final = 32
#: Seconds for a worker to import the tools.
LOADING: Final = 60.0
#: Seconds for a call to end after it was told to stop. The second is for a call that was withdrawn
#: and has no time limit.
GRACE: Final = 1.0
WITHDRAWN_GRACE: Final = 30.0
#: The most seconds by which a call's time is extended while its answer may be waiting unread.
MAX_EXTENSION: Final = 600.0
#: Bytes of running calls beyond which no other begins, and bytes that each counts as besides its
#: arguments.
MAX_HELD: Final = 96 * 2**20
_CALL_OVERHEAD: Final = 4_096
#: Workers in a row that may end while they import the tools.
MAX_FAILED_STARTS: Final = 3
#: Why a tool is no longer called: a later worker has loaded it with another signature.
CHANGED: Final = "its signature has changed since the kernel started: restart the kernel"
#: Kinds of answers from calls that stopped when they were told to.
_STOPPED: Final = ("Cancelled", "CancelledError")


@dataclass(slots=True, eq=False)
class _RunningCall:
    """A call in the worker.

    ``limit`` is its time in seconds, from the policy field ``setting``. ``waited_for``: somebody
    still waits for its answer. ``was_cancelled``: it was told to stop. ``extension``: seconds by
    which its time was extended, because its answer could not be read.
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
        """The bytes that the call takes, roughly."""
        return len(bytes(self.call.arguments)) + _CALL_OVERHEAD

    def stop_timer(self) -> None:
        """Cancel the call's timer."""
        if self.timer is not None:
            self.timer.cancel()

    def answer(self, answer: Answer) -> None:
        """Answer the call, if somebody waits. One that stopped when told to was over its time."""
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
    """Tell a worker to load its tools, before there is a ``WorkerProvider`` with these settings.

    A kernel does so as soon as it knows its policy, so that the worker imports the tools while the
    host imports the modules of a session. Returns when all bytes are sent. Raises OSError.
    """
    started.sock.sendall(frames.encode(_load(settings)))


def _load(settings: WorkerSettings) -> Load:
    return Load(settings=settings, environment=dict(os.environb))


class WorkerProvider:
    """The host's end of a worker, and of those that replace it: a source of tools.

    The first worker may have been started ahead (``load_ahead``).
    """

    def __init__(
        self,
        reactor: Reactor,
        settings: WorkerSettings,
        ahead: Started | None = None,
    ) -> None:
        self._reactor = reactor
        self._settings = settings
        self._ahead = ahead
        self._worker: Worker[FromWorker] | None = None
        #: Whether the worker has imported the tools, and the timer that ends if it takes too long.
        self._loaded = False
        self._failed_starts = 0
        self._loading: Timer | None = None
        #: Why no tool can be called for the rest of the session; empty if tools can.
        self._failure = ""
        #: Calls that wait for room, and calls that run in the worker.
        self._queue: deque[Call] = deque()
        self._runs: dict[int, _RunningCall] = {}
        #: After close() only the uses of credentials are still taken from the worker.
        self._is_closing = False
        #: Threads of the worker that run calls, and bytes of all running calls.
        self._blocking = self._held = 0
        #: Whether answers are held back, and the timer of the moment after that, in which the
        #: answers that waited are read.
        self._paused = False
        self._catching_up: Timer | None = None
        #: Calls that took too long and were told to stop. No other begins until they have, since
        #: the worker may have to be killed.
        self._stopping: set[int] = set()
        #: The tools of the first worker, and names of those that differ in a later one.
        self._tools = frozenset[Tool]()
        self._changed = frozenset[str]()
        self._on_tools: Callable[[tuple[Tool, ...]], None] | None = None
        self._on_failed: Callable[[PolicyError], None] | None = None

    def open(
        self, on_tools: Callable[[tuple[Tool, ...]], None], on_failed: Callable[[PolicyError], None]
    ) -> None:
        """Start a worker. Exactly one of the two is called."""
        self._on_tools = on_tools
        self._on_failed = on_failed
        self._start()

    def expect(self, tools: tuple[Tool, ...]) -> None:
        """Take over the tools that a worker with the same settings has, instead of ``open``.

        The worker starts with the first call, which waits until the tools are imported.
        """
        self._tools = _compared(tools)

    def narrow_to(self, timeout: float | None, timeouts: dict[str, float]) -> None:
        """Set the time limits. The worker keeps the tools that it has imported."""
        self._settings = structs.replace(self._settings, timeout=timeout, timeouts=timeouts)

    # --- calls --------------------------------------------------------------------------------

    def begin(self, call: Call) -> None:
        """Run a call as soon as a worker has room."""
        self._queue.append(call)
        if self._worker is None:
            self._start()
        self._pump()

    def cancel(self, number: int) -> None:
        """Stop a call, or forget it if it has not begun."""
        if (run := self._runs.get(number)) is None:
            self._queue = deque(call for call in self._queue if call.number != number)
            return
        # Its timer goes on: if the tool does not stop in time, the worker is replaced.
        run.waited_for = False
        self._cancel_run(run)
        if run.timer is None:
            self._time(run, WITHDRAWN_GRACE, self._replace)

    def hold(self, *, held: bool) -> None:
        """Hold answers back by not reading them, or read them again."""
        self._paused = held
        if self._catching_up is not None:
            self._catching_up.cancel()
        self._catching_up = None if held else self._reactor.call_later(GRACE, self._on_caught_up)
        # Before that, messages about loading are always read.
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
        """Begin the queued calls that the worker has room for. Sync tools need a free thread."""
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
        """Send a call to the worker, and start its timer."""
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
        """Answer a call that is over its time and tell it to stop; if it does not, kill the worker.

        A call that was withdrawn has been told already, so its worker is killed at once.
        """
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
        """Call ``action`` after ``seconds``; later if the call's answer may be waiting unread."""

        def on_due() -> None:
            if (self._paused or self._catching_up is not None) and run.extension < MAX_EXTENSION:
                run.extension += GRACE
                self._cancel_run(run)
                self._time(run, GRACE, action)
            else:
                action(run)

        run.timer = self._reactor.call_later(seconds, on_due)

    def _cancel_run(self, run: _RunningCall) -> None:
        if self._worker is not None and not run.was_cancelled:
            run.was_cancelled = True
            self._worker.send(Cancel(number=run.call.number))

    def _replace(self, run: _RunningCall) -> None:
        """Kill the worker, because this call in it did not stop."""
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
        self._loading = self._reactor.call_later(LOADING, self._on_load_timeout)
        if ahead is None:
            started.send(_load(self._settings))

    def _on_load_timeout(self) -> None:
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
                # Noted for the audit log even if nobody waits for the call any more.
                if (run := self._runs.get(number)) is not None:
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
        """Begin calls. The first worker's tools are reported; those of later ones are compared."""
        self._forget_loading()
        self._loaded = True
        self._failed_starts = 0
        if self._paused and self._worker is not None:
            self._worker.hold(held=True)
        compared = _compared(tools)
        if self._on_tools is not None:
            self._tools = compared
            on_tools, self._on_tools = self._on_tools, None
            on_tools(tools)
        self._changed = frozenset(tool.name for tool in self._tools - compared)
        self._pump()

    def _on_lost(self, reason: str) -> None:
        """Start over after a worker has ended by itself, unless it fails to load the tools."""
        if not self._loaded:
            self._failed_starts += 1
        if self._failed_starts >= MAX_FAILED_STARTS or (not self._loaded and self._on_tools):
            message = f"their worker ended while it imported them: {reason}"
            self._fail("", message, "Look at the host's stderr for what it said.")
        else:
            self._lost(f"the tools' worker ended: {reason}")

    def _lost(self, why: str) -> None:
        """Answer the running calls ``WorkerLost``, and run the waiting ones in a new worker."""
        self._forget_loading()
        self._worker, self._loaded, self._blocking, self._held = None, False, 0, 0
        self._stopping.clear()
        runs, self._runs = self._runs, {}
        for run in runs.values():
            run.answer(Answer(kind="WorkerLost", message=why))
        # A caller that was answered may have called again, and so started a worker.
        if self._queue and self._worker is None:
            self._start()

    def _forget_loading(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
            self._loading = None

    def _fail(self, entry: str, message: str, remedy: str) -> None:
        """Give up: from now on all calls are answered ``WorkerLost``, for this reason."""
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
    """Return tools without their descriptions, which alone may differ in a later worker."""
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
    gc.disable()  # imports make no garbage
    # Imported only now, since both import modules that read the environment.
    from cellblock.host.services.tools import registry, runner  # noqa: PLC0415 - see above

    settings, lock = load.settings, threading.Lock()

    def send(message: msgspec.Struct) -> None:
        frame = frames.encode(message)
        # If the host has hung up, the loop below ends.
        with lock, suppress(BrokenPipeError, ConnectionResetError):
            sock.sendall(frame)

    try:
        if settings.servers:  # imports the MCP SDK, which is an optional dependency
            tools = import_module(f"{__package__}.mcp_servers").connect(settings.servers)
        elif settings.operations is not None:
            # Imported here, since its imports would take other workers 25 ms.
            from cellblock.host.services.operations import loading  # noqa: PLC0415 - see above

            tools = loading.load(settings.operations)
        else:
            tools = registry.load(settings.entries)
    except registry.InvalidToolError as exc:
        send(LoadFailed(entry=exc.entry, message=exc.message, remedy=exc.remedy))
        return
    send(Loaded(tools=tuple(registered.tool for registered in tools.values())))
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
    """Yield the host's messages until it hangs up."""
    decode: frames.Decoder[ToWorker] = frames.Decoder(ToWorker)
    splitter = frames.Splitter(2 * frames.MAX_FRAME)
    with suppress(ConnectionResetError):  # the host hung up without reading all messages
        while data := sock.recv(READ_SIZE):
            for payload in splitter.feed(data):
                yield decode(payload)
