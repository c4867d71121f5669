"""Runs calls: sync tools in threads, async ones on one event loop. In the worker.

Every call is answered exactly once. One that is cancelled may be past hearing, in a call of C code
or with the loop to itself: then no answer comes, and the host ends the process for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import itertools
import queue
import threading
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from cellblock.host.services.tools import results
from cellblock.host.services.tools.protocol import Piece, Progress
from cellblock.wire import values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cellblock.host.services.tools.protocol import Begin, Raised, Returned
    from cellblock.host.services.tools.registry import RegisteredTool

    Answer = Returned | Raised
    Tasks = dict[int, asyncio.Task[Answer]]


# Stops what threads run, by an exception that they raise as soon as they run Python.
#
# CPython has a mark for such an exception that is due, one for all threads, which stays while
# the thread that it is for waits in C code. Every thread is slower for it, and one that is
# traced (by a debugger, or for coverage) goes no further at all under Python 3.11, whose
# interpreter returns to the start of a function for as long as the mark stands. So it is due for
# moments only, again and again until it is raised, and whoever has it so calls nothing that is
# written in Python meanwhile.

#: Seconds for which an exception is due, and between two times: at first, and at most.
DUE: Final = 0.005
FIRST: Final = 0.01
LONGEST: Final = 1.0
_set_due: Final = ctypes.pythonapi.PyThreadState_SetAsyncExc
_set_due.argtypes = [ctypes.c_ulong, ctypes.py_object]


class Cancelled(BaseException):
    """Raised within a tool whose answer nobody waits for any more."""


class _Raised(Cancelled):
    """Notes by itself where it was raised: what cleans up after it is not stopped too."""

    threads: Final = set[int]()

    def __init__(self) -> None:
        super().__init__()
        self.threads.add(threading.get_ident())


class ThreadStopper:
    """Knows which threads run what, by numbers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: dict[int, int] = {}
        #: What was told to stop and has not ended, and what of it has not raised it yet.
        self._told: set[int] = set()
        self._unheard: set[int] = set()
        self._again = threading.Event()
        self._is_serving = False

    def enter(self, number: int) -> None:
        """Count this thread as the one that runs ``number``, until it leaves that."""
        with self._lock:
            self._threads[number] = threading.get_ident()

    def leave(self, number: int) -> None:
        """Have nothing stopped any more; raises ``Cancelled`` if that was due."""
        with self._lock:
            self._threads.pop(number, None)
            told = number in self._told
            self._told.discard(number)
            self._unheard.discard(number)
        if told:
            # It may be due still, and must not come in the middle of something else.
            for _ in range(1_000):
                pass

    @property
    def entered(self) -> tuple[int, ...]:
        """What is run."""
        return tuple(self._threads)

    def stop(self, number: int) -> None:
        """Have what runs ``number`` raise ``Cancelled``, once; harmless if nothing does."""
        with self._lock:
            if number not in self._threads or number in self._told:
                return
            self._told.add(number)
            self._unheard.add(number)
            due, self._is_serving = not self._is_serving, True
        if not due:
            self._again.set()
            return
        try:
            threading.Thread(target=self._serve, daemon=True, name="tools").start()
        except RuntimeError:  # no thread is to be had: it goes on, as what is in C code does
            self._is_serving = False

    def _serve(self) -> None:
        interval = FIRST
        while self._attempt():
            interval = FIRST if self._again.wait(interval) else min(2 * interval, LONGEST)
            self._again.clear()

    def _attempt(self) -> bool:
        """Have it be due for a moment; say whether somebody has not heard of it yet."""
        with self._lock:
            due = [
                (number, self._threads[number])
                for number in self._unheard
                if number in self._threads
            ]
            if not due:
                self._is_serving = False
                return False
            _Raised.threads.difference_update([thread for _, thread in due])
            for _, thread in due:
                _set_due(thread, _Raised)
        time.sleep(DUE)
        with self._lock:
            for number, thread in due:
                if thread in _Raised.threads:
                    self._unheard.discard(number)
                elif number in self._threads:
                    _set_due(thread, _NOBODY)
            # The mark goes when a thread raises what is due for it.
            try:
                _set_due(threading.get_ident(), Cancelled)
                for _ in range(1_000):
                    pass
            except Cancelled:
                pass
        return True


#: What is due is nothing: NULL.
_NOBODY: Final = ctypes.py_object()


# What a call that takes its time says before its answer. In the worker.

_LONGEST: Final = 200


def _nobody(_text: str) -> None: ...


#: Of the call that runs in this thread or task: who is told how it is getting on, and who gets
#: pieces of the text that it is going to return.
progress_to: Final[ContextVar[Callable[[str], None]]] = ContextVar("progress_to", default=_nobody)
pieces_to: Final[ContextVar[Callable[[str], None]]] = ContextVar("pieces_to", default=_nobody)


def bind_progress(number: int, send: Callable[[Piece | Progress], None]) -> None:
    """Have ``send`` get what the call of this number says from now on."""
    progress_to.set(lambda text: send(Progress(number=number, text=text)))
    pieces_to.set(lambda text: send(Piece(number=number, text=text)))


def report_progress(text: str) -> None:
    """Show a line to whoever waits for the call under way."""
    progress_to.get()(text[:_LONGEST])


def send_piece(text: str) -> None:
    """Give the cell more of the text that the call under way will have returned."""
    pieces_to.get()(text)


#: Seconds that calls which were told to stop have to let go of their loop.
GRACE: Final = 1.0


class CallRunner:
    """Calls under way. ``send`` may be called from any thread."""

    def __init__(
        self,
        tools: Mapping[str, RegisteredTool],
        send: Callable[[Piece | Progress | Answer], None],
        *,
        threads: int,
        most: int,
    ) -> None:
        self._tools, self._send, self._most = tools, send, most
        #: Numbers of calls that wait for a thread, in ``_waiting`` unless dropped; None ends one.
        self._queue: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting: dict[int, Begin] = {}
        self._stopper = ThreadStopper()
        self._threads, self._most_threads = 0, threads
        self._busy = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        #: The thread that turns it, and what it counts as among what is run.
        self._turning: threading.Thread | None = None
        self._turns = itertools.count(-1, -1)
        self._turn_number = 0
        self._leaving: threading.Thread | None = None
        self._tasks: Tasks = {}

    def begin(self, call: Begin) -> None:
        """Start a call; the host knows which tools there are."""
        if self._tools[call.tool].tool.is_async:
            loop = self._own_loop()
            loop.call_soon_threadsafe(self._start_task, loop, self._tasks, call)
            return
        with self._lock:
            self._busy += 1
            self._waiting[call.number] = call
            due = self._busy > self._threads < self._most_threads
            self._threads += due
        if due:
            threading.Thread(target=self._serve, daemon=True, name="tool").start()
        self._queue.put(call.number)

    def drop(self, number: int) -> bool:
        """Forget a call that no thread has taken up, and what it carries; say whether it was one.

        It has no answer.
        """
        with self._lock:
            found = self._waiting.pop(number, None) is not None
            self._busy -= found
            return found

    def cancel(self, number: int) -> None:
        """Have a call raise ``Cancelled``, as soon as it runs Python."""
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self._cancel_task, number)
        if self.drop(number):
            self._send(results.encode_error(number, Cancelled()))
            return
        self._stopper.stop(number)

    def close(self) -> None:
        """Have all calls raise ``Cancelled``, and threads end that hold none."""
        for number in (*self._waiting, *self._stopper.entered):
            if number > 0:
                self.cancel(number)
        self.leave_loop()
        for _ in range(self._threads):
            self._queue.put(None)

    def leave_loop(self) -> None:
        """Have async calls cancelled, and those that begin now run on another loop.

        One that holds up its loop raises ``Cancelled``, a moment later.
        """
        loop, thread, self._loop = self._loop, self._turning, None
        if loop is not None and thread is not None:
            self._leaving = thread
            loop.call_soon_threadsafe(loop.stop)
            see_end = threading.Thread(
                target=self._see_end, args=[thread, self._turn_number], daemon=True, name="tools"
            )
            see_end.start()

    def ended(self, seconds: float) -> bool:
        """Wait for the loop that was left; say whether nothing runs on it."""
        if self._leaving is not None:
            self._leaving.join(seconds)
        return self._leaving is None or not self._leaving.is_alive()

    # --- sync ---------------------------------------------------------------------------------

    def _serve(self) -> None:
        while (number := self._queue.get()) is not None:
            answer = self._run(number)
            if answer is not None:
                with self._lock:
                    self._busy -= 1
                self._send(answer)

    def _run(self, number: int) -> Answer | None:
        """Return the answer of a call; None for one that was dropped."""
        answer: Answer | None = None
        try:
            try:
                if (call := self._taken(number)) is None:
                    return None
                answer = self._attempt(call)
            finally:
                self._stopper.leave(number)
        except Cancelled as exc:
            self._stopper.leave(number)  # it may have come on the way there
            answer = answer or results.encode_error(number, exc)
        return answer

    def _taken(self, number: int) -> Begin | None:
        """Return a call that runs in this thread from now on; None for one that was dropped."""
        with self._lock:
            call = self._waiting.pop(number, None)
            if call is not None:
                self._stopper.enter(number)
            return call

    def _attempt(self, call: Begin) -> Answer:
        try:
            bind_progress(call.number, self._send)
            args, kwargs = values.arguments(call.arguments)
            value = self._tools[call.tool].function(*args, **kwargs)
            return results.encode_result(call.number, value, self._most)
        except Cancelled:
            raise
        except BaseException as exc:
            return self._failed(call, exc)

    def _failed(self, call: Begin, error: BaseException) -> Answer:
        tool = self._tools[call.tool].tool
        return results.encode_error(call.number, error, tool, bytes(call.arguments))

    # --- async --------------------------------------------------------------------------------

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = loop = asyncio.new_event_loop()
            tasks: Tasks = {}
            self._tasks = tasks
            self._turn_number = next(self._turns)
            self._turning = threading.Thread(
                target=self._turn, args=[loop, tasks, self._turn_number], daemon=True, name="tools"
            )
            self._turning.start()
        return self._loop

    def _turn(self, loop: asyncio.AbstractEventLoop, tasks: Tasks, number: int) -> None:
        """Turn a loop until it is stopped; what has not ended then does not go on."""
        try:
            self._stopper.enter(number)
            try:
                _until_stopped(loop)
            finally:
                self._stopper.leave(number)
        except Cancelled:
            self._stopper.leave(number)  # as in _run
        for left in tuple(tasks):
            self._send(results.encode_error(left, Cancelled()))

    def _start_task(self, loop: asyncio.AbstractEventLoop, tasks: Tasks, call: Begin) -> None:
        tasks[call.number] = task = loop.create_task(self._run_async(call))
        task.add_done_callback(lambda task: self._end_task(tasks, call.number, task))

    def _end_task(self, tasks: Tasks, number: int, task: asyncio.Task[Answer]) -> None:
        del tasks[number]
        # One that is cancelled before it has begun says nothing by itself.
        cancelled = task.cancelled() and results.encode_error(number, asyncio.CancelledError())
        self._send(cancelled or task.result())

    def _see_end(self, thread: threading.Thread, number: int) -> None:
        """Have what holds up a loop's thread stop, if it does."""
        thread.join(GRACE)
        self._stopper.stop(number)

    def _cancel_task(self, number: int) -> None:
        if (task := self._tasks.get(number)) is not None:
            task.cancel()

    async def _run_async(self, call: Begin) -> Answer:
        bind_progress(call.number, self._send)
        try:
            args, kwargs = values.arguments(call.arguments)
            value = await self._tools[call.tool].function(*args, **kwargs)
            return results.encode_result(call.number, value, self._most)
        except BaseException as exc:
            return self._failed(call, exc)


def _until_stopped(loop: asyncio.AbstractEventLoop) -> None:
    """Turn a loop until it is stopped, and then for its tasks to end."""
    with contextlib.suppress(Cancelled):
        loop.run_forever()
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        if not task.cancelling():  # one that cleans up is not disturbed
            task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=GRACE / 2))
    loop.close()
