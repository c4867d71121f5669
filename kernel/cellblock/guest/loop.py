"""The guest's event loop: cells, tasks that outlive their cell, and ``asyncio.run`` inside cells.

A cell without await runs with the loop marked as running but not entered, so ``create_task`` works
and costs nothing; the loop turns while the guest waits for its next request.

Cells hold the loop, so they can spoil it. A spoilt one is replaced before it is used again: its
tasks are lost, later cells are not. Nothing of the kernel's waits in a task that cells could find.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
import threading
import weakref
from asyncio import _get_running_loop, _set_running_loop, base_events, selector_events
from asyncio.futures import _set_result_unless_cancelled  # type: ignore[attr-defined]
from asyncio.tasks import _register_task, _unregister_task
from collections import deque
from collections.abc import Coroutine
from contextlib import contextmanager, suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from cellblock.guest.violations import OperationViolation

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from cellblock.guest.channel import Channel
    from cellblock.wire import messages


#: What a timer calls, which its handle has as a private attribute.
_callback_of: Final = attrgetter("_callback")


#: The guest's own pipes, sockets and folders: those of its loops, and what it had before any cell.
own_descriptors: Final[set[int]] = set()


class GuestLoop(asyncio.SelectorEventLoop):
    """A loop that knows whether anybody ever used it.

    Until then waiting for the host is one blocking read, which is quicker.
    """

    # What asyncio calls its own, and no stub has.
    _csock: socket.socket
    _default_executor: Any
    _make_self_pipe: Callable[[], None]
    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _selector: selectors.BaseSelector
    _ssock: socket.socket
    #: The thread that turns the loop; None while none does.
    _thread_id: int | None
    _timer_cancelled_count: int
    _write_to_self: Callable[[], None]

    used = False
    #: What an async tool answered last in a plain cell, where nobody awaits: whoever has it run, or
    #: makes a task of it, as of a coroutine, gets it.
    settled: Any = object()

    def create_task(self, coro: Any, **kwargs: Any) -> asyncio.Task[Any]:
        """Make a task, of what was answered already too."""
        return super().create_task(_itself(coro) if coro is self.settled else coro, **kwargs)

    def take_over(self) -> int:
        """Drop what a copy shares with its original, and what was due in it.

        Returns how many calls were due later, those that tasks wait for aside. A call that never
        returned may be why the original was killed.
        """
        waits = _set_result_unless_cancelled
        due = [call for call in self._scheduled if _callback_of(call) is not waits]
        self._ready.clear()
        self._scheduled.clear()
        self._timer_cancelled_count = 0
        self._selector.close()
        self._selector = selectors.DefaultSelector()
        self._close_self_pipe()
        self._make_self_pipe()
        self.take_pipe()
        self._default_executor = None
        return sum(not call.cancelled() for call in due)

    def take_pipe(self) -> None:
        """Have the loop's pipe to itself be the guest's own: of a loop that no cell made."""
        own_descriptors.update((self._ssock.fileno(), self._csock.fileno()))

    def _close_self_pipe(self) -> None:
        own_descriptors.difference_update((self._ssock.fileno(), self._csock.fileno()))
        super()._close_self_pipe()  # type: ignore[misc]

    def turns(self) -> bool:
        """Whether somebody waits in the loop, as no plain cell does."""
        return super().is_running()

    def is_running(self) -> bool:
        """Whether the loop turns or is marked as running.

        By this libraries choose whether they make a task or wait for a coroutine, which they can't
        in a cell, and a loop that runs is not closed.
        """
        return _get_running_loop() is self or self.turns()

    def call_soon(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """Note that the loop is in use, and wake it where another thread calls.

        A widget's handler runs in a subshell's thread and sets the result of a future that a cell
        awaits here: asyncio schedules the cell by this, and the loop would sleep on.
        """
        self.used = True
        handle = super().call_soon(*args, **kwargs)
        if self._thread_id not in (None, threading.get_ident()):
            self._write_to_self()
        return handle

    def call_soon_threadsafe(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """Note that the loop is in use."""
        self.used = True
        return super().call_soon_threadsafe(*args, **kwargs)

    def call_at(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """Note that the loop is in use."""
        self.used = True
        return super().call_at(*args, **kwargs)


def _loop_of_guest() -> GuestLoop:
    loop = GuestLoop()
    loop.take_pipe()
    return loop


def make_loops_alike() -> None:
    """Have loops that cells make be of the running loop's class, as under ipykernel.

    nest_asyncio patches the class of that one, and by it every loop.
    """
    policy: Any = asyncio.DefaultEventLoopPolicy
    policy._loop_factory = GuestLoop  # noqa: SLF001 - what new_event_loop calls


async def _itself(value: Any) -> Any:
    return value


#: What an instance must not have of its own: it would stand before the loop's method.
_METHODS = frozenset(name for name in dir(GuestLoop) if callable(getattr(GuestLoop, name, None)))
_TYPES = {
    "_clock_resolution": float,
    "_closed": bool,
    "_ready": deque,
    "_scheduled": list,
    "_signal_handlers": dict,
    "_stopping": bool,
    "_timer_cancelled_count": int,
}


def is_sound(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether ``loop``, which does not turn now, has what it takes to turn."""
    state = vars(loop)
    return (
        _METHODS.isdisjoint(state)
        and all(type(state.get(name)) is kind for name, kind in _TYPES.items())
        and not (state["_closed"] or state["_stopping"])
        and state.get("_thread_id") is None
        and isinstance(state.get("slow_callback_duration"), (int, float))
        and all(issubclass(kind, asyncio.Handle) for kind in {*map(type, state["_ready"])})
        and all(issubclass(kind, asyncio.TimerHandle) for kind in {*map(type, state["_scheduled"])})
    )


class ChannelReaders:
    """Event loops that read the channel, each for as long as something in it waits for the host."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._uses: dict[asyncio.AbstractEventLoop, int] = {}
        #: A cell awaits, so that what is read may have to wait.
        self.in_cell = False

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Make ``loop`` a reader, or count one more use of it."""
        uses = self._uses.get(loop, 0)
        if not uses:
            loop.add_reader(self._channel.fileno(), self._read)
        self._uses[loop] = uses + 1

    def _read(self) -> None:
        self._channel.read(tell=self.in_cell)

    def end(self, loop: asyncio.AbstractEventLoop) -> None:
        """Count one use less; a loop without any reads no more."""
        uses = self._uses.get(loop, 0)
        if uses > 1:
            self._uses[loop] = uses - 1
        elif uses:
            del self._uses[loop]
            loop.remove_reader(self._channel.fileno())

    def forget(self, loop: asyncio.AbstractEventLoop) -> None:
        """Forget a loop: it is gone, or reads nothing any more."""
        self._uses.pop(loop, None)


class Inbox(Protocol):
    """Where a thread's messages arrive: the channel, or a subshell."""

    #: Called by whoever reads, when a message is here.
    on_message: Callable[[], None]

    def waiting(self) -> bool:
        """Whether a message is here already."""

    def recv(self) -> messages.ToGuest:
        """Return the next message, waiting for it."""


class _Interruptible(Coroutine[Any, Any, Any]):
    """A cell's coroutine, for which an interrupt that came while it waited is one."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], driver: Driver) -> None:
        self._coroutine, self._driver = coroutine, driver

    def __await__(self) -> Any:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        """Go on."""
        return self._coroutine.send(value)

    def throw(self, raised: Any, *rest: Any) -> Any:
        """Throw what is thrown, but KeyboardInterrupt in the place of a cancellation by one."""
        kind = raised if isinstance(raised, type) else type(raised)
        if issubclass(kind, asyncio.CancelledError) and self._driver.was_interrupted:
            return self._coroutine.throw(KeyboardInterrupt())
        return self._coroutine.throw(raised, *rest)

    def close(self) -> None:
        """End it where it stands."""
        self._coroutine.close()


class Driver:
    """Runs cells on a ``GuestLoop`` and waits for messages in ``inbox`` while its tasks go on.

    It belongs to the thread that makes it, or that ``begin`` is called in.
    """

    def __init__(self, inbox: Inbox, readers: ChannelReaders) -> None:
        self.readers = readers
        self.loop = _loop_of_guest()
        self._cell: asyncio.Task[Any] | None = None
        #: The running cell is being cancelled for an interrupt.
        self.was_interrupted = self._turning = False
        #: Takes up what a cell need not end for, while it awaits; the main thread's has one.
        self.deliver: Callable[[], None] | None = None
        #: That runs now: an interrupt is for it.
        self.delivers = False
        self.begin(inbox)

    def begin(self, inbox: Inbox) -> Self:
        """Belong to the calling thread, and wait for what arrives in ``inbox``."""
        self._inbox, self._thread = inbox, threading.get_ident()
        inbox.on_message = self._message_read
        asyncio.set_event_loop(self.loop)
        return self

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Mark the loop as running while a plain cell runs."""
        self._ensure_sound()
        _set_running_loop(self.loop)
        try:
            yield
        finally:
            _set_running_loop(None)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a cell's coroutine to its end; an interrupt arrives as KeyboardInterrupt."""
        self._ensure_sound()
        self.was_interrupted = False
        # Not by create_task: a cell may have set a task factory.
        self._cell = cell = asyncio.Task(_Interruptible(coroutine, self), loop=self.loop)
        try:
            if self.deliver is None:
                return self.loop.run_until_complete(cell)
            with self._reading_ahead():
                return self.loop.run_until_complete(cell)
        finally:
            self._cell = None
            if not cell.done():
                with suppress(Exception):  # a loop that this cell has spoilt
                    cell.cancel()

    @contextmanager
    def _reading_ahead(self) -> Iterator[None]:
        """Read the channel while a cell awaits."""
        loop = self.loop
        self.readers.in_cell = True
        self.readers.begin(loop)
        try:
            yield
        finally:
            self.readers.in_cell = False
            self.readers.end(loop)

    def _deliver(self) -> None:
        if self._cell is not None and self.deliver is not None:
            self.delivers = True
            try:
                self.deliver()
            finally:
                self.delivers = False

    def interrupt(self) -> bool:
        """Interrupt an awaiting cell by cancelling it; return whether that was the way."""
        cell = self._cell
        if cell is None or self.delivers or asyncio.current_task(self.loop) is cell:
            return False
        self.was_interrupted = True
        self.loop.call_soon_threadsafe(cell.cancel)
        return True

    def in_task(self) -> bool:
        """Whether a task runs right now, between cells or in one."""
        return self.loop.is_running() and asyncio.current_task(self.loop) is not None

    def next_message(self) -> messages.ToGuest:
        """Return the host's next message; tasks go on meanwhile."""
        while self.loop.used and not self._inbox.waiting():
            self._ensure_sound()
            try:
                self._turn()
            except Exception:
                self._renew()
        return self._inbox.recv()

    def _turn(self) -> None:
        """Turn the loop until a message is here, or until a task stops it."""
        loop = self.loop
        self.readers.begin(loop)
        try:
            self._turning = True
            # A thread that waits for a tool may have read it just now.
            if not self._inbox.waiting():
                loop.run_forever()
        finally:
            self._turning = False
            self.readers.end(loop)

    def _message_read(self) -> None:
        """Stop the loop for a message, in whichever thread read it."""
        if self._turning:
            here = threading.get_ident() == self._thread
            self.loop.stop() if here else self.loop.call_soon_threadsafe(self._stop_turning)
        elif self._cell is not None and self.deliver is not None:
            self.loop.call_soon_threadsafe(self._deliver)

    def _stop_turning(self) -> None:
        """Stop the loop; not where that comes late, and the loop turns for a cell."""
        if self._turning:
            self.loop.stop()

    def remember_tasks(self) -> Callable[[], None]:
        """Return what tells asyncio of the loop's tasks in a fork: Python 3.14 forgets them there.

        Before it is told of any, all are taken out of the list that links them.
        """
        tasks: set[asyncio.Task[Any]] = set()
        with suppress(Exception):  # what cells may have made of them
            tasks = asyncio.all_tasks(self.loop)

        def register() -> None:
            with suppress(Exception):
                for task in tasks:
                    _unregister_task(task)
                for task in tasks:
                    _register_task(task)

        return register

    def resume(self) -> int:
        """Make the loop one that a copy can run; cancel its tasks and return how many.

        The original's selector and pipe to itself are shared with the copy: registered there, or
        written to, they would wake the wrong one.
        """
        self._turning = False
        if vars(self.loop).get("_thread_id") is not None:  # of a subshell, which was not copied
            vars(self.loop)["_thread_id"] = None
        if not is_sound(self.loop):
            self._renew()
            return 0
        tasks = [task for task in asyncio.all_tasks(self.loop) if not task.done()]
        lost = len(tasks)
        try:
            lost += self.loop.take_over()
            self.readers.forget(self.loop)
            for task in tasks:
                task.cancel()
        except Exception:
            self._renew()
        return lost

    def _ensure_sound(self) -> None:
        if not is_sound(self.loop):
            self._renew()

    def _renew(self) -> None:
        """Replace a spoilt loop, whose tasks are lost."""
        spoilt, self.loop = self.loop, _loop_of_guest()
        self.readers.forget(spoilt)
        asyncio.set_event_loop(self.loop)
        with suppress(Exception):
            GuestLoop.close(spoilt)


def allow_nested_run() -> None:
    """Let ``asyncio.run`` work in a plain cell, where a loop is marked as running.

    Called in the zygote, before anything copies ``asyncio.run``. Inside an awaiting cell it
    still raises, as it does everywhere.
    """
    real = asyncio.run

    @functools.wraps(real)
    def run(main: Coroutine[Any, Any, Any], **kwargs: Any) -> Any:
        outer = _get_running_loop()
        if not isinstance(outer, GuestLoop) or outer.turns():
            return real(main, **kwargs)
        if main is outer.settled:
            return main
        _set_running_loop(None)
        try:
            return real(main, **kwargs)
        finally:
            asyncio.set_event_loop(outer)
            _set_running_loop(outer)

    asyncio.run = asyncio.runners.run = run


# --- what a cell finds in a loop ---------------------------------------------------------------

#: Of what a loop can do, refused in its own classes: nothing in a guest needs it.
_REFUSED = frozenset(
    (
        "connect_accepted_socket", "connect_read_pipe", "connect_write_pipe", "create_connection",
        "create_datagram_endpoint", "create_server", "create_unix_connection",
        "create_unix_server", "getaddrinfo", "getnameinfo", "sendfile", "sock_accept",
        "sock_connect", "sock_recv", "sock_recv_into", "sock_recvfrom", "sock_recvfrom_into",
        "sock_sendall", "sock_sendfile", "sock_sendto", "start_tls", "subprocess_exec",
        "subprocess_shell",
    )
)  # fmt: skip
#: Likewise, by how their names begin: each takes the loop's word for what a descriptor is.
_REFUSED_PRIVATE = (
    "_accept_", "_connect_", "_create_", "_make_", "_sendfile_", "_sock_", "_start_", "_stop_",
)  # fmt: skip
_NEEDED = "_make_self_pipe"
_HIDDEN = ("_csock", "_selector", "_ssock")
_CLASSES = (
    base_events.BaseEventLoop,
    selector_events.BaseSelectorEventLoop,
    asyncio.SelectorEventLoop,
)


def harden_loops() -> None:
    """Take sockets, processes and foreign descriptors out of asyncio's loops.

    A cell may hold its loop: ``get_running_loop`` is honest. What asyncio itself and the guest need
    is among the refused names; so are the loop's sockets and selector, which are kept outside of
    its ``__dict__``. Call once, before any loop is made, after all classes of them.
    """
    for kind in _CLASSES:
        for name in list(kind.__dict__):
            if name in _REFUSED or (name.startswith(_REFUSED_PRIVATE) and name != _NEEDED):
                setattr(kind, name, _refused_method(name))
    for name in _HIDDEN:
        # Values that are in no ``__dict__``.
        values: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        hidden = property(values.__getitem__, values.__setitem__)
        setattr(selector_events.BaseSelectorEventLoop, name, hidden)
    _refuse_subclasses()


def _refuse_subclasses() -> None:
    """Refuse loops of cells' own classes: their attributes would take the place of hidden ones."""
    base: Any = base_events.BaseEventLoop
    known, below = {base}, [base]
    while below:
        found = below.pop().__subclasses__()
        known.update(found)
        below += found
    make, known_classes = base.__init__, frozenset(known)

    def refuse_subclass(_cls: type, /, **_keys: object) -> None:
        raise _no_operation("a class of loops")

    def init_known(self: Any) -> None:
        if type(self) not in known_classes:  # a base before ours may have left ours uncalled
            raise _no_operation("a class of loops")
        make(self)

    base.__init_subclass__ = classmethod(refuse_subclass)
    base.__init__ = init_known


def _refused_method(name: str) -> Callable[..., Any]:
    def refused(*_args: object, **_kwargs: object) -> None:
        raise _no_operation(f"loop.{name}")

    refused.__name__ = refused.__qualname__ = name
    return refused


def _no_operation(what: str) -> OperationViolation:
    why, remedy = "reaches processes, sockets or descriptors", "Ask the host for an operation."
    return OperationViolation("operation-not-allowed", what, why, remedy)
