"""Runs calls, in a worker or a program: sync tools in threads, async ones on one event loop.

Each call is answered exactly once. A sync call that is told to stop raises ``Cancelled`` as soon as
it runs Python; an async one has its task cancelled. A call that hangs in C code, or blocks the
loop, does not stop. In a worker it then has no answer, and the host kills the process.

``InProcessTools`` runs functions of a program that uses the Python API in that program, where
nothing can be killed. A call there that was withdrawn or is over its time, and does not stop, keeps
its thread until it ends. Its result is dropped, and beyond ``MAX_STUCK`` such calls no other
begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import itertools
import queue
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cellblock.host.services.tools.calls import Answer, calling_cell, progress_to, uses_to
from cellblock.host.services.tools.registry import encode_error, encode_result
from cellblock.host.services.tools.worker_messages import Answered, Begin, KeySent, Progress
from cellblock.wire import arrays

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cellblock.errors import PolicyError
    from cellblock.host.services.tools.calls import Call
    from cellblock.host.services.tools.registry import RegisteredTool
    from cellblock.wire.messages import Tool


# --- stopping threads -------------------------------------------------------------------------
#
# A thread is stopped by an asynchronous exception (PyThreadState_SetAsyncExc), which it raises as
# soon as it runs Python. While such an exception is pending, CPython sets a flag for all threads,
# and the flag stays set for as long as the thread in question waits in C code. Meanwhile every
# thread is slower, and a traced one (by a debugger, or for coverage) does not go on at all under
# Python 3.11, whose interpreter returns to the start of a function while the flag is set. So the
# exception is made pending for moments only, again and again until it is raised, and no Python code
# is called during such a moment.

#: The least seconds for which the exception is pending, and the least part of the interval: a busy
#: machine may not get to run the thread within five milliseconds.
PENDING_SECONDS: Final = 0.005
PENDING_PART: Final = 0.05
#: Seconds between two attempts: the first interval, and the longest.
FIRST_INTERVAL: Final = 0.01
MAX_INTERVAL: Final = 1.0
_set_async_exception: Final = ctypes.pythonapi.PyThreadState_SetAsyncExc
_set_async_exception.argtypes = [ctypes.c_ulong, ctypes.py_object]


class Cancelled(BaseException):
    """The exception that is raised within a tool that is told to stop."""


class _Raised(Cancelled):
    """A Cancelled that notes its thread when it is raised, so that it is raised there only once.

    A second one would stop the tool's clean-up code.
    """

    threads: Final = set[int]()

    def __init__(self) -> None:
        super().__init__()
        self.threads.add(threading.get_ident())


class ThreadStopper:
    """The threads that run calls, by the numbers of the calls, and a way to stop them.

    While calls are to be stopped, a thread of its own (``_serve``) tries to.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: dict[int, int] = {}
        #: Calls that were told to stop and still run, and those of them that have not raised
        #: Cancelled yet.
        self._stopping: set[int] = set()
        self._unraised: set[int] = set()
        #: Set when one more call is to be stopped.
        self._again = threading.Event()
        self._is_serving = False

    def enter(self, number: int) -> None:
        """Note that this thread runs the call ``number``, until ``leave``."""
        with self._lock:
            self._threads[number] = threading.get_ident()

    def leave(self, number: int) -> None:
        """Note that this thread has left the call. Raises ``Cancelled`` if it is still pending."""
        with self._lock:
            self._threads.pop(number, None)
            was_stopped = number in self._stopping
            self._stopping.discard(number)
            self._unraised.discard(number)
        if was_stopped:
            # Run some Python, so that a pending exception is raised here and not later, in the
            # middle of another call.
            for _ in range(1_000):
                pass

    @property
    def entered(self) -> tuple[int, ...]:
        """The calls that run in a thread."""
        return tuple(self._threads)

    def stop(self, number: int) -> None:
        """Make the call ``number`` raise ``Cancelled``, once. Does nothing if it isn't running."""
        with self._lock:
            if number not in self._threads or number in self._stopping:
                return
            self._stopping.add(number)
            self._unraised.add(number)
            must_start, self._is_serving = not self._is_serving, True
        if not must_start:
            self._again.set()
            return
        try:
            threading.Thread(target=self._serve, daemon=True, name="tools").start()
        except RuntimeError:  # no thread can be started: the call goes on, as it does in C code
            self._is_serving = False

    def _serve(self) -> None:
        """Try to stop calls at growing intervals, until all have raised the exception."""
        interval = FIRST_INTERVAL
        while self._attempt(max(PENDING_SECONDS, interval * PENDING_PART)):
            interval = (
                FIRST_INTERVAL if self._again.wait(interval) else min(2 * interval, MAX_INTERVAL)
            )
            self._again.clear()

    def _attempt(self, seconds: float) -> bool:
        """Make the exception pending for ``seconds`` in all threads to stop.

        Return False if there were none.
        """
        with self._lock:
            threads_to_stop = [
                (call, self._threads[call]) for call in self._unraised if call in self._threads
            ]
            if not threads_to_stop:
                self._is_serving = False
                return False
            _Raised.threads.difference_update([thread for _, thread in threads_to_stop])
            for _, thread in threads_to_stop:
                _set_async_exception(thread, _Raised)
        time.sleep(seconds)
        with self._lock:
            for number, thread in threads_to_stop:
                if thread in _Raised.threads:
                    self._unraised.discard(number)
                elif number in self._threads:
                    _set_async_exception(thread, _WITHDRAWN)
            # CPython clears its flag only when a thread raises its exception, so this one does.
            try:
                _set_async_exception(threading.get_ident(), Cancelled)
                for _ in range(1_000):
                    pass
            except Cancelled:
                pass
        return True


#: NULL, which withdraws a pending exception.
_WITHDRAWN: Final = ctypes.py_object()


#: Seconds for async calls to end after they were told to stop.
GRACE: Final = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class _Loop:
    """An event loop that runs async calls, and their tasks by the calls' numbers.

    ``thread`` is None if the loop is the program's own. Otherwise the loop runs in that thread,
    which the stopper knows by ``number``. It is negative; calls' numbers are positive.
    """

    loop: asyncio.AbstractEventLoop
    number: int = 0
    thread: threading.Thread | None = None
    tasks: dict[int, asyncio.Task[Answer]] = field(default_factory=dict)


#: The most bytes of arguments that are decoded on the event loop itself.
_SMALL: Final = 4_096


class CallRunner:
    """The runner of calls, which passes their answers and reports to ``send``, from any thread.

    Sync calls run in up to ``threads`` threads. Async calls run on ``loop``, which is the
    program's own; without it, on a loop in a thread.
    """

    def __init__(
        self,
        tools: Mapping[str, RegisteredTool],
        send: Callable[[Progress | KeySent | Answered], None],
        *,
        threads: int,
        max_bytes: int,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._tools = tools
        self._send = send
        self._max_bytes = max_bytes
        #: Numbers of calls that wait for a thread. A call that is no longer in ``_waiting`` was
        #: cancelled. None ends a thread.
        self._queue: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting: dict[int, Begin] = {}
        self._stopper = ThreadStopper()
        #: Threads that have been started, and the most there may be.
        self._threads = 0
        self._most_threads = threads
        #: Sync calls that wait or run.
        self._busy = 0
        self._loop = None if loop is None else _Loop(loop)
        self._loop_numbers = itertools.count(-1, -1)
        self._leaving: threading.Thread | None = None

    def begin(self, call: Begin) -> None:
        """Start a call of a known tool: the host admits no other."""
        if self._tools[call.tool].tool.is_async:
            own = self._loop = self._loop or self._start_loop()
            own.loop.call_soon_threadsafe(self._start_task, own, call)
            return
        with self._lock:
            self._busy += 1
            self._waiting[call.number] = call
            needs_thread = self._busy > self._threads < self._most_threads
            self._threads += needs_thread
        if needs_thread:
            threading.Thread(target=self._serve, daemon=True, name="tool").start()
        self._queue.put(call.number)

    def cancel(self, number: int) -> None:
        """Tell a call to stop. A call that has not begun is answered at once."""
        if (own := self._loop) is not None:
            own.loop.call_soon_threadsafe(_cancel_task, own, number)
        with self._lock:
            was_waiting = self._waiting.pop(number, None) is not None
            self._busy -= was_waiting
        if was_waiting:
            self._answer(number, encode_error(Cancelled()))
        else:
            self._stopper.stop(number)

    def close(self) -> None:
        """Tell all calls to stop, and let idle threads end."""
        for number in (*self._waiting, *self._stopper.entered):
            if number > 0:
                self.cancel(number)
        self.leave_loop()
        for _ in range(self._threads):
            self._queue.put(None)

    def leave_loop(self) -> None:
        """Cancel the calls on a loop in a thread, so that later calls run on a new loop.

        A call that blocks the old loop raises ``Cancelled`` a moment later.
        """
        own = self._loop
        if own is None or own.thread is None:
            return
        self._loop = None
        self._leaving = own.thread
        own.loop.call_soon_threadsafe(own.loop.stop)
        watcher = threading.Thread(
            target=self._stop_blocker, args=[own.thread, own.number], daemon=True, name="tools"
        )
        watcher.start()

    def ended(self, seconds: float) -> bool:
        """Wait for the thread of a loop that was left; return whether it has ended."""
        if self._leaving is not None:
            self._leaving.join(seconds)
        return self._leaving is None or not self._leaving.is_alive()

    def _answer(self, number: int, answer: Answer) -> None:
        self._send(Answered(number=number, answer=answer))

    # --- sync ---------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Run queued calls in this thread until it is told to end."""
        while (number := self._queue.get()) is not None:
            answer = self._run(number)
            if answer is not None:
                with self._lock:
                    self._busy -= 1
                self._answer(number, answer)

    def _run(self, number: int) -> Answer | None:
        """Run a call and return its answer; None if it was cancelled before it began."""
        answer: Answer | None = None
        try:
            try:
                with self._lock:
                    call = self._waiting.pop(number, None)
                    if call is None:
                        return None
                    self._stopper.enter(number)
                answer = self._attempt(call)
            finally:
                self._stopper.leave(number)
        except Cancelled as exc:
            self._stopper.leave(number)  # it may have been raised before or within leave()
            answer = answer or encode_error(exc)
        return answer

    def _attempt(self, call: Begin) -> Answer:
        try:
            self._bind(call)
            args, kwargs = arrays.arguments(call.arguments)
            tool = self._tools[call.tool]
            if call.checks_only:
                tool.check(*args, **kwargs)
                return Answer()
            return encode_result(tool.function(*args, **kwargs), self._max_bytes)
        except Cancelled:
            raise
        except BaseException as exc:  # whatever a tool raises is the cell's error, SystemExit too
            return self._failed(call, exc)

    def _failed(self, call: Begin, error: BaseException) -> Answer:
        tool = self._tools[call.tool].tool
        return encode_error(error, tool, bytes(call.arguments))

    def _bind(self, call: Begin) -> None:
        """Set the context variables by which code of this thread or task reports for its call."""
        calling_cell.set(call.cell)
        uses_to.set(lambda use: self._send(KeySent(number=call.number, use=use)))
        progress_to.set(lambda text: self._send(Progress(number=call.number, text=text)))

    # --- async --------------------------------------------------------------------------------

    def _start_loop(self) -> _Loop:
        number = next(self._loop_numbers)
        thread = threading.Thread(target=lambda: self._run_loop(own), daemon=True, name="tools")
        own = _Loop(asyncio.new_event_loop(), number, thread)
        thread.start()
        return own

    def _run_loop(self, own: _Loop) -> None:
        """Run a loop until it is stopped, then answer the calls that have not ended."""
        try:
            self._stopper.enter(own.number)
            try:
                _until_stopped(own.loop)
            finally:
                self._stopper.leave(own.number)
        except Cancelled:
            self._stopper.leave(own.number)  # as in _run
        for number in tuple(own.tasks):
            self._answer(number, encode_error(Cancelled()))

    def _start_task(self, own: _Loop, call: Begin) -> None:
        own.tasks[call.number] = task = own.loop.create_task(self._run_async(own, call))
        task.add_done_callback(lambda task: self._end_task(own, call.number, task))

    async def _run_async(self, own: _Loop, call: Begin) -> Answer:
        self._bind(call)
        try:
            if len(call.arguments) <= _SMALL:
                args, kwargs = arrays.arguments(call.arguments)
            else:  # this loop may be the host's, and pandas takes a second for a very wide table
                args, kwargs = await asyncio.to_thread(arrays.arguments, call.arguments)
            tool = self._tools[call.tool]
            if call.checks_only:
                tool.check(*args, **kwargs)
                return Answer()
            return encode_result(await tool.function(*args, **kwargs), self._max_bytes)
        except BaseException as exc:  # as in _attempt; a cancellation, too
            if own.thread is None and not isinstance(exc, Exception | asyncio.CancelledError):
                raise  # SystemExit, say, ends the program, as this is the program's loop
            return self._failed(call, exc)

    def _end_task(self, own: _Loop, number: int, task: asyncio.Task[Answer]) -> None:
        del own.tasks[number]
        if task.cancelled() or task.exception() is not None:
            # A task that is cancelled before it begins does not run _run_async.
            self._answer(number, encode_error(asyncio.CancelledError()))
        else:
            self._answer(number, task.result())

    def _stop_blocker(self, thread: threading.Thread, number: int) -> None:
        """Stop the call that blocks a loop, if its thread has not ended after ``GRACE``."""
        thread.join(GRACE)
        self._stopper.stop(number)


def _cancel_task(own: _Loop, number: int) -> None:
    if (task := own.tasks.get(number)) is not None:
        task.cancel()


def _until_stopped(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop until it is stopped, then cancel its tasks and wait for them for a moment."""
    with contextlib.suppress(Cancelled):
        loop.run_forever()
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        if not task.cancelling():  # a task that is cleaning up is not disturbed
            task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=GRACE / 2))
    loop.close()


# --- functions of a program, run in it --------------------------------------------------------

#: Sync functions that run at the same time.
THREADS: Final = 32
#: Calls that did not stop when told to, beyond which no other begins.
MAX_STUCK: Final = 96
_LOOP_BLOCKED: Final = "a call beside it did not stop when it was told to"


class InProcessTools:
    """A source of tools that are functions of the program, and run in it.

    ``timeout`` is the time limit of a call in seconds; ``max_bytes`` bounds a result. Async
    functions run on the session's ``loop``, or with ``own_loop`` on a loop in a thread.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        tools: Mapping[str, RegisteredTool],
        *,
        timeout: float | None,
        max_bytes: int,
        own_loop: bool = False,
    ) -> None:
        self._loop = loop
        self._tools = tools
        self._timeout = timeout
        self._has_own_loop = own_loop
        self._runner = CallRunner(
            tools,
            self._on_message_in_thread,
            threads=THREADS + MAX_STUCK,
            max_bytes=max_bytes,
            loop=None if own_loop else loop,
        )
        #: Sync calls that wait for a thread, and how many run in one and are waited for.
        self._queue: OrderedDict[int, Call] = OrderedDict()
        self._blocking = 0
        #: Running calls that are waited for, and their timers.
        self._calls: dict[int, tuple[Call, asyncio.TimerHandle | None]] = {}
        #: Calls that were told to stop and have not ended.
        self._stuck: set[int] = set()
        #: Answers that are held back; None while answers are not.
        self._held: list[tuple[Call, Answer]] | None = None

    def open(
        self, on_tools: Callable[[tuple[Tool, ...]], None], on_failed: Callable[[PolicyError], None]
    ) -> None:
        """Report the tools, which are loaded already."""
        del on_failed
        self._loop.call_soon(on_tools, tuple(each.tool for each in self._tools.values()))

    def narrow_to(self, timeout: float | None, timeouts: Mapping[str, float]) -> None:
        """Set the time limit of calls that begin from now on."""
        del timeouts  # those are for the policy's tools
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
            # Later: if the guest has ended, its other calls are cancelled next, and must not begin.
            self._loop.call_soon(self._pump)

    def hold(self, *, held: bool) -> None:
        """Hold answers back, or let them go again."""
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
        """Wait for the thread of its own loop after ``close``; return whether it has ended."""
        return self._runner.ended(seconds)

    def _pump(self) -> None:
        """Begin the queued calls that there is room for; answer all if too many calls are stuck."""
        while self._queue and len(self._stuck) >= MAX_STUCK:
            _, call = self._queue.popitem(last=False)
            stuck = f"{len(self._stuck)} calls before it did not stop when they were told to"
            why = f"it was not begun: {stuck}"
            self._give(call, Answer(kind="WorkerLost", message=why))
        while self._queue and self._blocking < THREADS:
            self._start(self._queue.popitem(last=False)[1])

    def _start(self, call: Call) -> None:
        """Give a call to the runner, and start its timer."""
        number = call.number
        timer = None
        if self._timeout is not None:
            timer = self._loop.call_later(self._timeout, self._overdue, number, self._timeout)
        self._calls[number] = call, timer
        self._blocking += not call.tool.is_async
        self._runner.begin(
            Begin(
                number=number,
                tool=call.tool.name,
                arguments=call.arguments,
                cell=call.cell,
                checks_only=call.checks_only,
            )
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
            self._loop.call_later(GRACE, self._leave_if_blocked, call.number)

    def _leave_if_blocked(self, number: int) -> None:
        """If a call still blocks the loop in a thread, leave that loop with all calls on it."""
        if number not in self._stuck:
            return
        self._runner.leave_loop()
        for call, _ in tuple(self._calls.values()):
            if call.tool.is_async:
                self._forget(call.number)
                self._stuck.add(call.number)
                self._give(call, Answer(kind="WorkerLost", message=_LOOP_BLOCKED))

    def _on_message_in_thread(self, message: Progress | KeySent | Answered) -> None:
        """Pass a call's message to the session's loop, from the thread that runs the call."""
        with contextlib.suppress(RuntimeError):  # the loop has closed
            self._loop.call_soon_threadsafe(self._on_message, message)

    def _on_message(self, message: Progress | KeySent | Answered) -> None:
        match message:
            case Progress(number=number, text=text) if number in self._calls:
                self._calls[number][0].tell(text)
            case Answered(number=number, answer=answer):
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
        """Stop waiting for a call. Return it if it was waited for until now."""
        call, timer = self._calls.pop(number, (None, None))
        if timer is not None:
            timer.cancel()
        self._blocking -= call is not None and not call.tool.is_async
        return call
