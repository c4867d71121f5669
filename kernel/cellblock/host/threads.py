"""Work in folders that cells write to: in a thread of its own, told of in the loop.

Cells can keep a folder locked, and whoever looks up a name there waits, however long: no signal
ends that. The loop serves other sessions, and so does a pool of threads: six that wait, and
nobody's file is read. So each piece of work has a thread, which nobody waits for at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.reactor import Reactor

P = ParamSpec("P")
T = TypeVar("T")


def begin(
    reactor: Reactor,
    work: Callable[[], T],
    done: Callable[[Future[T]], None],
    *,
    seconds: float | None = None,
) -> Work[T]:
    """Run ``work`` in a thread of its own; call ``done`` with its outcome in the event loop.

    The outcome is a TimeoutError if ``work`` takes longer than ``seconds``, and an OSError if no
    thread can be started.
    """
    work_begun = Work(reactor, done, seconds)
    work_begun.start(work)
    return work_begun


class Work(Generic[T]):
    """Work under way, whose outcome is told once."""

    def __init__(
        self, reactor: Reactor, done: Callable[[Future[T]], None], seconds: float | None
    ) -> None:
        self._reactor, self._done, self._outcome = reactor, done, Future[T]()
        #: A pipe: a byte says that the outcome is there. Our end is -1 once nobody listens.
        self._ours, self._theirs = os.pipe()
        self._timer = None if seconds is None else reactor.call_later(seconds, self._end_late)
        reactor.watch(self._ours, self._end)

    def start(self, work: Callable[[], T]) -> None:
        """Begin it."""
        try:
            _start(partial(self._run, work))
        except RuntimeError:  # there are too many threads
            self._outcome.set_exception(OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
            self._tell()

    def forget(self) -> None:
        """Hear of it no more: the thread goes on alone."""
        if self._ours >= 0:
            self._reactor.unwatch(self._ours)
            os.close(self._ours)
            self._ours = -1
            if self._timer is not None:
                self._timer.cancel()

    def _end(self) -> None:
        self.forget()
        self._done(self._outcome)

    def _end_late(self) -> None:
        self.forget()
        late = Future[T]()
        late.set_exception(TimeoutError())
        self._done(late)

    # --- in the thread ------------------------------------------------------------------------

    def _run(self, work: Callable[[], T]) -> None:
        _settle(self._outcome, work)
        self._tell()

    def _tell(self) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more
            os.write(self._theirs, b"1")
        os.close(self._theirs)


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what ``work`` does, as ``asyncio.to_thread``, which has a pool of threads."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def tell(outcome: Future[T]) -> None:
        if future.cancelled():
            return
        if (error := outcome.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(outcome.result())

    def run() -> None:
        outcome = Future[T]()
        _settle(outcome, partial(work, *args, **kwargs))
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, outcome)

    _start(run)
    return await future


def _settle(outcome: Future[T], work: Callable[[], T]) -> None:
    """Do work, and have its outcome be what it returns or raises."""
    try:
        outcome.set_result(work())
    except BaseException as error:  # noqa: BLE001 - it is raised where the outcome is taken
        outcome.set_exception(error)


def _start(run: Callable[[], None]) -> None:
    threading.Thread(target=run, name="cellblock-work", daemon=True).start()
