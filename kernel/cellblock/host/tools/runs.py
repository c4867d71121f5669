"""Runs calls: sync tools in threads, async ones on one event loop. In the worker.

Every call is answered exactly once. One that is cancelled may be past hearing, in a call of C code
or with the loop to itself: then no answer comes, and the host ends the process for it.
"""

from __future__ import annotations

import asyncio
import ctypes
import queue
import threading
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cellblock.host.tools import answers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cellblock.host.tools.registry import Registered
    from cellblock.host.tools.speech import Begin, Raised, Returned

_decode: Final = msgspec.msgpack.Decoder(tuple[list[Any], dict[str, Any]]).decode


class Cancelled(BaseException):
    """Raised within a tool whose answer nobody waits for any more."""


class Runs:
    """Calls under way. ``send`` may be called from any thread."""

    def __init__(
        self,
        tools: Mapping[str, Registered],
        send: Callable[[Returned | Raised], None],
        *,
        threads: int,
        most: int,
    ) -> None:
        self._tools, self._send, self._most = tools, send, most
        self._queue: queue.SimpleQueue[Begin] = queue.SimpleQueue()
        self._lock = threading.Lock()
        #: Calls to the threads that run them, None until then; and those that were cancelled.
        self._running: dict[int, int | None] = {}
        self._cancelled: set[int] = set()
        self._threads, self._most_threads = 0, threads
        self._busy = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def begin(self, call: Begin) -> None:
        """Start a call; the host knows which tools there are."""
        if self._tools[call.tool].tool.is_async:
            loop = self._own_loop()
            loop.call_soon_threadsafe(self._start_task, loop, call)
            return
        with self._lock:
            self._busy += 1
            self._running[call.number] = None
            due = self._busy > self._threads < self._most_threads
            self._threads += due
        if due:
            threading.Thread(target=self._serve, daemon=True, name="tool").start()
        self._queue.put(call)

    def cancel(self, number: int) -> None:
        """Have a call raise ``Cancelled``, as soon as it runs Python."""
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self._cancel_task, number)
        with self._lock:
            if number not in self._running:
                return
            self._cancelled.add(number)
            if (thread := self._running[number]) is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread), ctypes.py_object(Cancelled)
                )

    # --- sync ---------------------------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            call = self._queue.get()
            answer = self._run(call)
            with self._lock:
                self._busy -= 1
            self._send(answer)

    def _run(self, call: Begin) -> Returned | Raised:
        answer: Returned | Raised | None = None
        with self._lock:
            self._running[call.number] = threading.get_ident()
            early = call.number in self._cancelled
        try:
            try:
                if early:
                    raise Cancelled
                answer = self._attempt(call)
            finally:
                self._leave(call.number)
        except Cancelled as exc:
            answer = answer or answers.raised(call.number, exc)
        return answer

    def _leave(self, number: int) -> None:
        with self._lock:
            self._running.pop(number, None)
            cancelled = number in self._cancelled
            self._cancelled.discard(number)
        if cancelled:
            # It may be due still, and must not come in the middle of a frame.
            for _ in range(1_000):
                pass

    def _attempt(self, call: Begin) -> Returned | Raised:
        try:
            args, kwargs = _decode(call.arguments)
            value = self._tools[call.tool].function(*args, **kwargs)
        except Cancelled:
            raise
        except BaseException as exc:  # noqa: BLE001 - a tool's exception is its cell's
            return answers.raised(call.number, exc, self._tools[call.tool].tool)
        return answers.returned(call.number, value, self._most)

    # --- async --------------------------------------------------------------------------------

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, daemon=True, name="tools").start()
        return self._loop

    def _start_task(self, loop: asyncio.AbstractEventLoop, call: Begin) -> None:
        self._tasks[call.number] = loop.create_task(self._run_async(call))

    def _cancel_task(self, number: int) -> None:
        if (task := self._tasks.get(number)) is not None:
            task.cancel()

    async def _run_async(self, call: Begin) -> None:
        try:
            args, kwargs = _decode(call.arguments)
            value = await self._tools[call.tool].function(*args, **kwargs)
            answer = answers.returned(call.number, value, self._most)
        except BaseException as exc:  # noqa: BLE001 - as above; being cancelled is an answer too
            answer = answers.raised(call.number, exc, self._tools[call.tool].tool)
        self._tasks.pop(call.number, None)
        self._send(answer)
