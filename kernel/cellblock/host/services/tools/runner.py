"""Running calls in the worker: sync tools in threads, async ones on one event loop.

Every call is answered exactly once. A call that is told to stop raises ``Cancelled`` as soon as it
runs Python, or its task is cancelled. One that hangs in C code, or keeps the loop to itself, does
not stop: then there is no answer, and the host kills the process.
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
from cellblock.host.services.tools.worker import Piece, Progress
from cellblock.wire import values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cellblock.host.services.tools.registry import RegisteredTool
    from cellblock.host.services.tools.worker import Begin, Raised, Returned

    Answer = Returned | Raised
    Tasks = dict[int, asyncio.Task[Answer]]


# --- stopping threads -------------------------------------------------------------------------
#
# A thread is stopped by an asynchronous exception (PyThreadState_SetAsyncExc), which it raises as
# soon as it runs Python. CPython marks that one is pending in a flag for all threads, which stays
# set while the thread in question waits in C code. Meanwhile every thread is slower, and a traced
# one (by a debugger, or for coverage) does not go on at all under Python 3.11, whose interpreter
# returns to the start of a function while the flag is set. So the exception is pending for moments
# only, again and again until it is raised, and nothing written in Python is called meanwhile.

#: Seconds for which the exception is pending, and between two times: at first, and at most.
DUE: Final = 0.005
FIRST: Final = 0.01
LONGEST: Final = 1.0
_set_async_exception: Final = ctypes.pythonapi.PyThreadState_SetAsyncExc
_set_async_exception.argtypes = [ctypes.c_ulong, ctypes.py_object]


class Cancelled(BaseException):
    """Raised within a tool that is told to stop."""


class _Raised(Cancelled):
    """Notes in which thread it was raised, so that clean-up code is not stopped as well."""

    threads: Final = set[int]()

    def __init__(self) -> None:
        super().__init__()
        self.threads.add(threading.get_ident())


class ThreadStopper:
    """Knows which thread runs which call, by number, and stops it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: dict[int, int] = {}
        #: Calls that were told to stop and run still, and those that have not raised it yet.
        self._stopping: set[int] = set()
        self._unraised: set[int] = set()
        self._again = threading.Event()
        self._is_serving = False

    def enter(self, number: int) -> None:
        """Note that this thread runs the call ``number`` until it leaves it."""
        with self._lock:
            self._threads[number] = threading.get_ident()

    def leave(self, number: int) -> None:
        """Stop the call no more. Raises ``Cancelled`` if that was pending."""
        with self._lock:
            self._threads.pop(number, None)
            was_told = number in self._stopping
            self._stopping.discard(number)
            self._unraised.discard(number)
        if was_told:
            # A pending one is raised here, not in the middle of something else.
            for _ in range(1_000):
                pass

    @property
    def entered(self) -> tuple[int, ...]:
        """The calls that run in a thread."""
        return tuple(self._threads)

    def stop(self, number: int) -> None:
        """Have the call ``number`` raise ``Cancelled``, once; harmless if none runs."""
        with self._lock:
            if number not in self._threads or number in self._stopping:
                return
            self._stopping.add(number)
            self._unraised.add(number)
            due, self._is_serving = not self._is_serving, True
        if not due:
            self._again.set()
            return
        try:
            threading.Thread(target=self._serve, daemon=True, name="tools").start()
        except RuntimeError:  # there is no thread to be had: the call goes on, as in C code
            self._is_serving = False

    def _serve(self) -> None:
        interval = FIRST
        while self._attempt():
            interval = FIRST if self._again.wait(interval) else min(2 * interval, LONGEST)
            self._again.clear()

    def _attempt(self) -> bool:
        """Have the exception pending for a moment; return whether to try again."""
        with self._lock:
            due = [
                (number, self._threads[number])
                for number in self._unraised
                if number in self._threads
            ]
            if not due:
                self._is_serving = False
                return False
            _Raised.threads.difference_update([thread for _, thread in due])
            for _, thread in due:
                _set_async_exception(thread, _Raised)
        time.sleep(DUE)
        with self._lock:
            for number, thread in due:
                if thread in _Raised.threads:
                    self._unraised.discard(number)
                elif number in self._threads:
                    _set_async_exception(thread, _WITHDRAWN)
            # The flag is cleared when a thread raises its exception.
            try:
                _set_async_exception(threading.get_ident(), Cancelled)
                for _ in range(1_000):
                    pass
            except Cancelled:
                pass
        return True


#: Withdraws a pending exception: NULL.
_WITHDRAWN: Final = ctypes.py_object()


# --- what a call says before its answer -------------------------------------------------------

_LONGEST: Final = 200


def _ignore(_text: str) -> None: ...


#: Of the call that runs in this thread or task: what gets progress lines, and what gets pieces of
#: the text that it is going to return.
progress_to: Final[ContextVar[Callable[[str], None]]] = ContextVar("progress_to", default=_ignore)
pieces_to: Final[ContextVar[Callable[[str], None]]] = ContextVar("pieces_to", default=_ignore)


def bind_progress(number: int, send: Callable[[Piece | Progress], None]) -> None:
    """Have ``send`` get what the code of this thread or task reports, as the call ``number``."""
    progress_to.set(lambda text: send(Progress(number=number, text=text)))
    pieces_to.set(lambda text: send(Piece(number=number, text=text)))


def report_progress(text: str) -> None:
    """Show a line to the user who waits for the call that runs here."""
    progress_to.get()(text[:_LONGEST])


def send_piece(text: str) -> None:
    """Give the cell more of the text that the call that runs here is going to return."""
    pieces_to.get()(text)


#: Seconds that async calls have to end after they were told to stop.
GRACE: Final = 1.0


class CallRunner:
    """Runs calls. ``send`` is called from any thread."""

    def __init__(
        self,
        tools: Mapping[str, RegisteredTool],
        send: Callable[[Piece | Progress | Answer], None],
        *,
        threads: int,
        most: int,
    ) -> None:
        self._tools, self._send, self._most = tools, send, most
        #: Calls that wait for a thread, in ``_waiting`` unless dropped; None ends a thread.
        self._queue: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting: dict[int, Begin] = {}
        self._stopper = ThreadStopper()
        self._threads, self._most_threads = 0, threads
        self._busy = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        #: The thread that runs the loop, and its number for the stopper: negative, unlike calls'.
        self._loop_thread: threading.Thread | None = None
        self._loop_numbers = itertools.count(-1, -1)
        self._loop_number = 0
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
        """Forget a call that no thread has begun, without answer; return whether there was one."""
        with self._lock:
            found = self._waiting.pop(number, None) is not None
            self._busy -= found
            return found

    def cancel(self, number: int) -> None:
        """Tell a call to stop."""
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self._cancel_task, number)
        if self.drop(number):
            self._send(results.encode_error(number, Cancelled()))
            return
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
        """Cancel the async calls, and run those that begin now on a new loop.

        A call that blocks the old loop raises ``Cancelled`` a moment later.
        """
        loop, thread, self._loop = self._loop, self._loop_thread, None
        if loop is not None and thread is not None:
            self._leaving = thread
            loop.call_soon_threadsafe(loop.stop)
            see_end = threading.Thread(
                target=self._see_end, args=[thread, self._loop_number], daemon=True, name="tools"
            )
            see_end.start()

    def ended(self, seconds: float) -> bool:
        """Wait for the old loop's thread; return whether it has ended."""
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
        """Run a call and return its answer; None if it was dropped."""
        answer: Answer | None = None
        try:
            try:
                if (call := self._taken(number)) is None:
                    return None
                answer = self._attempt(call)
            finally:
                self._stopper.leave(number)
        except Cancelled as exc:
            self._stopper.leave(number)  # it was raised on the way there
            answer = answer or results.encode_error(number, exc)
        return answer

    def _taken(self, number: int) -> Begin | None:
        """Take a call over in this thread; None if it was dropped."""
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
        except BaseException as exc:  # a tool's exception is its cell's
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
            self._loop_number = next(self._loop_numbers)
            self._loop_thread = threading.Thread(
                target=self._run_loop,
                args=[loop, tasks, self._loop_number],
                daemon=True,
                name="tools",
            )
            self._loop_thread.start()
        return self._loop

    def _run_loop(self, loop: asyncio.AbstractEventLoop, tasks: Tasks, number: int) -> None:
        """Run a loop until it is stopped; calls that have not ended then are answered."""
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
        # A task that is cancelled before it began has run none of our code.
        cancelled = task.cancelled() and results.encode_error(number, asyncio.CancelledError())
        self._send(cancelled or task.result())

    def _see_end(self, thread: threading.Thread, number: int) -> None:
        """Stop the call that blocks a loop's thread, if there is one."""
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
        except BaseException as exc:  # as above; so is its cancellation
            return self._failed(call, exc)


def _until_stopped(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop until it is stopped, and then until its tasks have ended."""
    with contextlib.suppress(Cancelled):
        loop.run_forever()
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        if not task.cancelling():  # one that cleans up is not disturbed
            task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=GRACE / 2))
    loop.close()
