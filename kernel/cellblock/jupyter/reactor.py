"""``ZmqReactor``: the kernel's event loop, for zmq sockets, descriptors, timers and signals.

One thread, without asyncio (ADR 0001). No callback waits for user code, so a single poll serves the
heartbeat as well as a running cell, and a round trip needs no hand-over between threads.
"""

from __future__ import annotations

import heapq
import itertools
import os
import signal
import time
import traceback
from typing import TYPE_CHECKING, Any

import zmq

from cellblock.host.guests.spawn import available_processors

if TYPE_CHECKING:
    from collections.abc import Callable


#: As plain numbers: combining zmq's own flags takes microseconds.
_IN = int(zmq.POLLIN)
_OUT = int(zmq.POLLOUT)
#: Cancelled timers that may stay in the heap.
_MOST_CANCELLED = 64
#: Seconds for which the loop polls busily for an expected event. To sleep and be woken would cost
#: as much (ADR 0001).
_AT_ONCE = 0.00025


class ZmqTimer:
    """A timer of the reactor."""

    __slots__ = ("_on_cancel", "action")

    def __init__(self, action: Callable[[], None], on_cancel: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action
        self._on_cancel = on_cancel

    def cancel(self) -> None:
        """Cancel the timer; nothing happens if it is due already."""
        if self.action is not None:
            self.action = None
            self._on_cancel()


class ZmqReactor:
    """``host.reactor.Reactor`` over ``zmq.Poller``."""

    def __init__(self) -> None:
        self._poller = zmq.Poller()
        self._callbacks: dict[Any, Callable[[], None]] = {}
        self._timers: list[tuple[float, int, ZmqTimer]] = []
        #: How many of the timers are cancelled. They stay in the heap until they are due, or until
        #: most timers are cancelled.
        self._cancelled = 0
        self._serial = itertools.count()
        self._running = False
        self._expecting = False
        #: Whether the last expected event came within ``_AT_ONCE``.
        self._brisk = False
        #: Whether there is only one processor. Busy polling would keep it from the sender.
        self._alone = available_processors() == 1

    def watch(
        self, fd: Any, on_ready: Callable[[], None], *, read: bool = True, write: bool = False
    ) -> None:
        """Call ``on_ready`` whenever a descriptor or zmq socket is ready to read or to write."""
        self._callbacks[fd] = on_ready
        self._poller.register(fd, (_IN if read else 0) | (_OUT if write else 0))

    def unwatch(self, fd: Any) -> None:
        """Stop watching a descriptor or socket."""
        # If it is watched for neither reading nor writing, it is not in the poller.
        if self._callbacks.pop(fd, None) is not None and fd in self._poller:
            self._poller.unregister(fd)

    def call_later(self, seconds: float, action: Callable[[], None]) -> ZmqTimer:
        """Call ``action`` from the loop in ``seconds``; return a timer that can be cancelled."""
        timer = ZmqTimer(action, self._on_cancel)
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._serial), timer))
        return timer

    def _on_cancel(self) -> None:
        """Count a cancelled timer; remove all of these when they are most of the heap."""
        self._cancelled += 1
        if self._cancelled > _MOST_CANCELLED and 2 * self._cancelled > len(self._timers):
            self._timers[:] = [entry for entry in self._timers if entry[2].action is not None]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def expect(self) -> None:
        """Poll busily for the next event, if the last expected event came at once (ADR 0001)."""
        self._expecting = True

    def on_signal(self, numbers: dict[int, Callable[[], None]]) -> None:
        """Call back when a signal arrives, from the loop and not from the signal handler."""
        read_fd, write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, lambda *_: None)

        def arrived() -> None:
            for number in os.read(read_fd, 64):
                if number in numbers:
                    numbers[number]()

        self.watch(read_fd, arrived)

    def run(self) -> None:
        """Run callbacks and timers until ``stop`` is called."""
        self._running = True
        while self._running:
            for fd, _ in self._poll(self._run_due_timers()):
                callback = self._callbacks.get(fd)
                if callback is not None:
                    _call_safely(callback)

    def _poll(self, timeout: int | None) -> list[tuple[Any, int]]:
        """Return the descriptors that are ready, after ``timeout`` milliseconds at most."""
        poll = self._poller.poll
        clock = time.perf_counter
        expecting = self._expecting
        self._expecting = False
        if not expecting:
            return poll(timeout)
        began = now = clock()
        while self._brisk and now - began < _AT_ONCE:
            if ready := poll(0):
                return ready
            now = clock()
        ready = poll(timeout)
        at_once = bool(ready) and clock() - began < _AT_ONCE
        self._brisk = at_once and not self._alone
        return ready

    def stop(self) -> None:
        """End ``run`` after the present callback."""
        self._running = False

    def _run_due_timers(self) -> int | None:
        """Run the timers that are due; return the milliseconds until the next, or None."""
        timers = self._timers
        while timers and self._running:
            deadline, _, timer = timers[0]
            if timer.action is None:
                heapq.heappop(timers)
                self._cancelled -= 1
                continue
            wait = deadline - time.monotonic()
            if wait > 0:
                return int(wait * 1000) + 1
            heapq.heappop(timers)
            action = timer.action
            timer.action = None
            _call_safely(action)
        # If a timer has stopped the loop, it must not wait for events any more.
        return None if self._running else 0


def _call_safely(action: Callable[[], None]) -> None:
    """Call ``action``. An exception, which is a fault of cellblock's, is printed (promise P6)."""
    try:
        action()
    except Exception:  # noqa: BLE001 - the loop goes on
        traceback.print_exc()
