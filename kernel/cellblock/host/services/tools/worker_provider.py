"""Runs tools in a worker: started, limited in time, and replaced when it must be.

There is one for the operator's tools and another for operations of the host's own.
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cellblock.errors import PolicyError
from cellblock.host.guests.worker_process import Worker
from cellblock.host.services.tools import protocol
from cellblock.host.services.tools.calls import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cellblock.host.services.tools.calls import Call, WorkerSettings
    from cellblock.host.session.types import Reactor, Timer
    from cellblock.wire.messages import Tool


# A call that a worker runs: how long it may, whether it was told to stop, and its one answer.

#: Bytes that a call holds beside its arguments.
_EACH: Final = 4_096
#: Kinds of the answers of calls that were told to stop, and did.
_STOPPED: Final = ("Cancelled", "CancelledError")


class Begun:
    """One call. ``limit`` is in seconds, and ``setting`` what sets it.

    ``waited_for``: somebody still wants its answer. ``told`` to stop: once. ``unheard`` are the
    seconds for which it was left alone after it was due.
    """

    __slots__ = ("_setting", "call", "limit", "timer", "told", "unheard", "waited_for")

    def __init__(self, call: Call, limit: float | None, setting: str) -> None:
        self.call, self.limit, self._setting = call, limit, setting
        self.waited_for, self.told, self.unheard = True, False, 0.0
        self.timer: Timer | None = None

    @property
    def size(self) -> int:
        """Bytes that it holds, about."""
        return len(bytes(self.call.arguments)) + _EACH

    def stop(self) -> None:
        """Have its time not run out any more."""
        if self.timer is not None:
            self.timer.cancel()

    def answer(self, answer: Answer) -> None:
        """Give its answer to whoever waits for it; one that was told to stop says why it did."""
        self.stop()
        if self.waited_for:
            self.waited_for = False
            stopped = self.told and answer.kind in _STOPPED
            self.call.answer(self.too_long() if stopped else answer)

    def too_long(self) -> Answer:
        """Return the answer of a call whose time is over."""
        said = f"it took longer than {self.limit or 0:g} s ({self._setting})"
        return Answer(kind="TimeoutError", message=said)


#: Sync tools that run at once.
THREADS: Final = 32
#: Seconds that a worker has to import the tools.
LOADING: Final = 60.0
#: Seconds that a call which was cancelled has to end.
GRACE: Final = 1.0
#: The same for one that was withdrawn, where the policy sets no limit.
LEFT_ALONE: Final = 30.0
#: Seconds that a call which was told to stop is left alone since its answer may wait to be heard.
UNHEARD: Final = 600.0
#: Bytes that calls in the worker may hold, those that nobody waits for, too; and one call besides.
MOST_HELD: Final = 96 * 2**20
#: What runs in the worker.
_MODULE: Final = "cellblock.host.services.tools.worker"
#: Workers in a row that may end before they have imported the tools.
MAX_FAILED_STARTS: Final = 3


class WorkerProvider:
    """A provider. ``open`` tells, later, which tools there are, or why there are none."""

    def __init__(self, reactor: Reactor, settings: WorkerSettings) -> None:
        self._reactor, self._settings = reactor, settings
        self._worker: Worker[protocol.FromWorker] | None = None
        self._loaded = False
        self._queue: deque[Call] = deque()
        self._runs: dict[int, Begun] = {}
        self._blocking = self._held = 0
        #: What the worker says is not heard now; or was not, until a moment ago.
        self._deaf = False
        self._catching_up: Timer | None = None
        #: Calls that took too long and are to stop: nothing is begun beside them, for the worker
        #: may have to be ended over them.
        self._stopping: set[int] = set()
        self._failed_starts = 0
        self._failure = ""
        self._loading: Timer | None = None
        self._on_tools: Callable[[tuple[Tool, ...]], None] | None = None
        self._on_failed: Callable[[PolicyError], None] | None = None

    def open(
        self,
        on_tools: Callable[[tuple[Tool, ...]], None],
        on_failed: Callable[[PolicyError], None],
    ) -> None:
        """Start; exactly one of the two is called."""
        self._on_tools, self._on_failed = on_tools, on_failed
        self._start()

    def hold_to(self, timeout: float | None, timeouts: Mapping[str, float]) -> None:
        """Have calls take no longer than this; what the worker has imported stays in it."""
        self._settings = replace(self._settings, timeout=timeout, timeouts=timeouts)

    # --- calls --------------------------------------------------------------------------------

    def begin(self, call: Call) -> None:
        """Run a call as soon as a worker has room."""
        self._queue.append(call)
        if self._worker is None:
            self._start()
        self._pump()

    def cancel(self, number: int) -> None:
        """Stop a call."""
        if (run := self._runs.get(number)) is not None:
            # Its time goes on: a tool that waits for something ends by itself, and in time.
            run.waited_for = False
            self._tell_to_stop(run)
            if run.timer is None:
                self._time(run, LEFT_ALONE, lambda: self._replace(run))
            return
        waiting = [call for call in self._queue if call.number != number]
        self._queue = deque(waiting)

    def hold(self, *, held: bool) -> None:
        """Take no answers for now, or again."""
        self._deaf = held
        if self._catching_up is not None:
            self._catching_up.cancel()
        self._catching_up = None if held else self._reactor.call_later(GRACE, self._caught_up)
        # One that imports says nothing that makes us wait.
        if self._worker is not None and self._loaded:
            self._worker.hold(held=held)

    def _caught_up(self) -> None:
        self._catching_up = None

    def give_up(self, why: str) -> None:
        """Answer all calls with this, and end the worker."""
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
            run.stop()
        self._runs.clear()
        self._queue.clear()
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    def _pump(self) -> None:
        """Begin what the worker may hold, sync tools while threads are free."""
        if self._failure:
            queue, self._queue = self._queue, deque()
            for call in queue:
                call.answer(Answer(kind="WorkerLost", message=self._failure))
        if not self._loaded or not self._queue or self._stopping:
            return
        waiting, self._queue = self._queue, deque()
        for call in waiting:
            has_thread = call.tool.is_async or self._blocking < THREADS
            if has_thread and self._held < MOST_HELD:
                self._run(call)
            else:
                self._queue.append(call)

    def _run(self, call: Call) -> None:
        name = call.tool.name
        limit = self._settings.timeouts.get(name, self._settings.timeout)
        self._runs[call.number] = run = Begun(call, limit, self._settings.limit)
        self._held += run.size
        self._blocking += not call.tool.is_async
        if limit is not None:
            self._time(run, limit, lambda: self._overdue(run))
        if self._worker is not None:
            self._worker.send(
                protocol.Begin(number=call.number, tool=name, arguments=call.arguments)
            )
            self._reactor.expect()

    def _overdue(self, run: Begun) -> None:
        """Stop a call; a worker that does not let go of it is replaced."""
        if not run.waited_for:
            self._replace(run)
            return
        run.answer(run.too_long())
        self._stopping.add(run.call.number)
        self._tell_to_stop(run)
        self._time(run, GRACE, lambda: self._replace(run))

    def _time(self, run: Begun, seconds: float, action: Callable[[], None]) -> None:
        """Have ``action`` follow in that time, and a call's end where its answer may have come."""

        def due() -> None:
            if (self._deaf or self._catching_up is not None) and run.unheard < UNHEARD:
                run.unheard += GRACE
                self._tell_to_stop(run)
                self._time(run, GRACE, action)
            else:
                action()

        run.timer = self._reactor.call_later(seconds, due)

    def _tell_to_stop(self, run: Begun) -> None:
        if self._worker is not None and not run.told:
            run.told = True
            self._worker.send(protocol.Cancel(number=run.call.number))

    def _replace(self, run: Begun) -> None:
        if (worker := self._worker) is not None:
            worker.kill()
            name = run.call.tool.name
            self._lost(f"the tools' worker was ended: {name} did not stop when it was told to")

    # --- the worker ---------------------------------------------------------------------------

    def _start(self) -> None:
        if self._failure:
            return
        settings = self._settings
        try:
            self._worker = worker = Worker(
                self._reactor, _MODULE, protocol.FromWorker, self._on_message, self._on_lost
            )
        except OSError as exc:
            self._fail("", f"no process could be started for them: {exc.strerror}", "")
            return
        self._loading = self._reactor.call_later(LOADING, self._too_slow)
        worker.send(
            protocol.Load(
                entries=settings.entries,
                operations=settings.operations,
                environment=dict(os.environb),
                threads=THREADS,
                max_bytes=settings.max_bytes,
            )
        )

    def _too_slow(self) -> None:
        if self._worker is not None:
            self._worker.kill()
        self._fail("", f"importing them took longer than {LOADING:g} s", "Import less in them.")

    def _on_message(self, message: protocol.FromWorker) -> None:
        match message:
            case protocol.Piece(number=number, text=text):
                if (run := self._runs.get(number)) is not None and run.waited_for:
                    run.call.piece(text)
            case protocol.Returned(number=number, value=value):
                self._answer(number, Answer(bytes(value)))
            case protocol.Raised(number=number, kind=kind, message=text):
                self._answer(number, Answer(kind=kind or "Exception", message=text))
            case protocol.Progress(number=number, text=text):
                self._tell(number, text)
            case protocol.Loaded(tools=tools):
                self._on_loaded(tools)
            case protocol.LoadFailed():
                if self._worker is not None:
                    self._worker.kill()
                self._fail(message.entry, message.message, message.remedy)

    def _tell(self, number: int, text: str) -> None:
        run = self._runs.get(number)
        if run is not None and run.waited_for:
            run.call.tell(text)

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
        if self._deaf and self._worker is not None:
            self._worker.hold(held=True)
        if self._on_tools is not None:
            on_tools, self._on_tools = self._on_tools, None
            on_tools(tools)
        self._pump()

    def _on_lost(self, how: str) -> None:
        if not self._loaded:
            self._failed_starts += 1
        if self._failed_starts >= MAX_FAILED_STARTS or (not self._loaded and self._on_tools):
            said = f"their worker ended while it imported them: {how}"
            self._fail("", said, "Look at the host's stderr for what it said.")
        else:
            self._lost(f"the tools' worker ended: {how}")

    def _lost(self, why: str) -> None:
        """Answer what was under way with why there is no answer; go on with what was not."""
        self._forget_loading()
        self._worker, self._loaded, self._blocking, self._held = None, False, 0, 0
        self._stopping.clear()
        runs, self._runs = self._runs, {}
        for run in runs.values():
            run.answer(Answer(kind="WorkerLost", message=why))
        # Whoever was answered just now may have called again.
        if self._queue and self._worker is None:
            self._start()

    def _forget_loading(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
            self._loading = None

    def _fail(self, entry: str, message: str, remedy: str) -> None:
        """Have no tools, for good."""
        self._failure = f"no tool can be called: {message}"
        self._lost(self._failure)
        self._pump()
        if self._on_failed is not None and self._on_tools is not None:
            value = repr(entry or list(self._settings.entries))
            file = self._settings.policy
            error = PolicyError(message, file=file, key="tools", value=value, remedy=remedy)
            self._on_tools = None
            self._on_failed(error)
