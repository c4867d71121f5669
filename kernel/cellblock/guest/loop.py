"""The guest's event loop: cells, tasks that outlive their cell, and ``asyncio.run`` inside cells.

The main thread and each subshell has a ``Driver`` with a ``GuestLoop``. A loop is in one of three
states:

    idle      the guest waits for a request, without the loop if no cell has ever used it
    marked    a cell without await runs: the loop counts as running, so that ``create_task`` works,
              but is not entered, which costs nothing
    turning   a cell awaits (``Driver.run``), or tasks go on between requests (``_turn``)

Cells can get hold of the loop, and spoil it. A spoilt loop is replaced before it is used again: its
tasks are lost, later cells run. Nothing of the kernel waits in a task that cells could find.
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


#: Return what a timer calls: a private attribute of its handle.
_callback_of: Final = attrgetter("_callback")


#: The guest's own pipes, sockets and folders: those of its loops, and all that were open before the
#: first cell.
own_descriptors: Final[set[int]] = set()


class GuestLoop(asyncio.SelectorEventLoop):
    """An event loop that knows whether it was ever used.

    Until it is, the guest waits for the host by one blocking read, which is quicker.
    """

    # Private attributes of asyncio, which no stub declares.
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
    #: The last answer that an async tool gave to a cell without a top-level await. There the call
    #: returns the answer itself. The cell may still treat the answer like a coroutine:
    #: ``asyncio.run`` and ``create_task`` accept this object, and give it back.
    settled: Any = object()

    def create_task(self, coro: Any, **kwargs: Any) -> asyncio.Task[Any]:
        """Make a task, also of the answer in ``settled``."""
        return super().create_task(_itself(coro) if coro is self.settled else coro, **kwargs)

    def take_over(self) -> int:
        """Drop what a copy shares with its original, and all calls that are due or scheduled.

        Return how many calls were scheduled for later, not counting those that wake tasks from
        sleep. Calls are dropped because one that never returned may be why the original was killed.
        """
        waits = _set_result_unless_cancelled
        scheduled = [call for call in self._scheduled if _callback_of(call) is not waits]
        self._ready.clear()
        self._scheduled.clear()
        self._timer_cancelled_count = 0
        self._selector.close()
        self._selector = selectors.DefaultSelector()
        self._close_self_pipe()
        self._make_self_pipe()
        self.take_pipe()
        self._default_executor = None
        return sum(not call.cancelled() for call in scheduled)

    def take_pipe(self) -> None:
        """Count the loop's pipe to itself among the guest's own: no cell made this loop."""
        own_descriptors.update((self._ssock.fileno(), self._csock.fileno()))

    def _close_self_pipe(self) -> None:
        own_descriptors.difference_update((self._ssock.fileno(), self._csock.fileno()))
        super()._close_self_pipe()  # type: ignore[misc]

    def turns(self) -> bool:
        """Return whether the loop is turning, which it is not while a plain cell runs."""
        return super().is_running()

    def is_running(self) -> bool:
        """Return whether the loop turns or is marked as running.

        Libraries ask this to decide between making a task and waiting for a coroutine. In a cell
        they can't wait. A loop that counts as running can't be closed, either.
        """
        return _get_running_loop() is self or self.turns()

    def call_soon(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """Note that the loop is in use, and wake it if another thread calls.

        asyncio itself does not wake it. A widget's handler in a subshell's thread may set the
        result of a future that a cell awaits in this loop. asyncio then schedules the cell by this
        method, and the loop would sleep on.
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


def _new_loop() -> GuestLoop:
    """Make a loop of the guest's own."""
    loop = GuestLoop()
    loop.take_pipe()
    return loop


def make_loops_alike() -> None:
    """Give loops that cells make the class of the running loop, as under ipykernel.

    nest_asyncio patches only the class of the running loop. With one class for all loops, the patch
    reaches each of them.
    """
    policy: Any = asyncio.DefaultEventLoopPolicy
    policy._loop_factory = GuestLoop  # noqa: SLF001 - what new_event_loop calls


async def _itself(value: Any) -> Any:
    return value


#: Names of methods. A loop with an instance attribute of such a name is spoilt.
_METHODS = frozenset(name for name in dir(GuestLoop) if callable(getattr(GuestLoop, name, None)))
#: Attributes that a sound loop has, with their exact types.
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
    """Return whether ``loop``, which is not turning, still can: no cell has spoilt it."""
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
    """The event loops that read the channel.

    A loop reads as long as something in it waits for the host.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._uses: dict[asyncio.AbstractEventLoop, int] = {}
        #: A cell awaits, so requests that are read must wait (``Channel.read``).
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
        """Count one use less; a loop without uses stops reading."""
        uses = self._uses.get(loop, 0)
        if uses > 1:
            self._uses[loop] = uses - 1
        elif uses:
            del self._uses[loop]
            loop.remove_reader(self._channel.fileno())

    def forget(self, loop: asyncio.AbstractEventLoop) -> None:
        """Forget a loop that was replaced, or whose selector was."""
        self._uses.pop(loop, None)


class Inbox(Protocol):
    """The source of a thread's messages: the channel, or a subshell."""

    #: Called when a message has arrived, by the thread that read it.
    on_message: Callable[[], None]

    def waiting(self) -> bool:
        """Return whether a message has arrived."""

    def recv(self) -> messages.ToGuest:
        """Wait for the next message and return it."""


class _Interruptible(Coroutine[Any, Any, Any]):
    """Wraps a cell's coroutine, so that an interrupt while it awaits is a KeyboardInterrupt.

    ``Driver.interrupt`` cancels the cell's task. This turns the CancelledError into what the user
    expects.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any], driver: Driver) -> None:
        self._coroutine = coroutine
        self._driver = driver

    def __await__(self) -> Any:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        """Resume the cell."""
        return self._coroutine.send(value)

    def throw(self, raised: Any, *rest: Any) -> Any:
        """Raise an exception in the cell: KeyboardInterrupt if an interrupt cancelled it."""
        kind = raised if isinstance(raised, type) else type(raised)
        if issubclass(kind, asyncio.CancelledError) and self._driver.was_interrupted:
            return self._coroutine.throw(KeyboardInterrupt())
        return self._coroutine.throw(raised, *rest)

    def close(self) -> None:
        """Close the cell's coroutine."""
        self._coroutine.close()


class Driver:
    """Runs cells on a ``GuestLoop``, and waits for messages in ``inbox`` while tasks go on.

    Belongs to the thread that makes it, or that calls ``begin`` later. ``readers`` has loops read
    the channel.
    """

    def __init__(self, inbox: Inbox, readers: ChannelReaders) -> None:
        self.readers = readers
        self.loop = _new_loop()
        #: The task of the cell that awaits.
        self._cell: asyncio.Task[Any] | None = None
        #: ``was_interrupted``: the cell is being cancelled because of an interrupt. ``_turning``:
        #: tasks go on while no cell runs.
        self.was_interrupted = self._turning = False
        #: Handles messages that arrive while a cell awaits. Only the main thread's driver has one.
        self.deliver: Callable[[], None] | None = None
        #: ``deliver`` runs now, and interrupts are for it.
        self.delivers = False
        self.begin(inbox)

    def begin(self, inbox: Inbox) -> Self:
        """Make this driver the calling thread's, with messages from ``inbox``."""
        self._inbox = inbox
        self._thread = threading.get_ident()
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
                with suppress(Exception):  # the cell has spoilt the loop
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
        """Cancel the cell if it awaits; return False if KeyboardInterrupt must be raised instead.

        Called by the signal handler.
        """
        cell = self._cell
        if cell is None or self.delivers or asyncio.current_task(self.loop) is cell:
            return False
        self.was_interrupted = True
        self.loop.call_soon_threadsafe(cell.cancel)
        return True

    def in_task(self) -> bool:
        """Return whether a task is running at this moment, between cells or in one."""
        return self.loop.is_running() and asyncio.current_task(self.loop) is not None

    def next_message(self) -> messages.ToGuest:
        """Wait for the next message of the inbox and return it; tasks go on meanwhile."""
        while self.loop.used and not self._inbox.waiting():
            self._ensure_sound()
            try:
                self._turn()
            except Exception:
                self._renew()
        return self._inbox.recv()

    def _turn(self) -> None:
        """Turn the loop until a message has arrived, or a task stops the loop."""
        loop = self.loop
        self.readers.begin(loop)
        try:
            self._turning = True
            # Looked at again: a thread that waits for a tool may have read a message just now.
            if not self._inbox.waiting():
                loop.run_forever()
        finally:
            self._turning = False
            self.readers.end(loop)

    def _message_read(self) -> None:
        """Make the loop react to a message: stop it between cells, or deliver while one awaits.

        Called in the thread that read the message, whichever that is.
        """
        if self._turning:
            is_own_thread = threading.get_ident() == self._thread
            self.loop.stop() if is_own_thread else self.loop.call_soon_threadsafe(
                self._stop_turning
            )
        elif self._cell is not None and self.deliver is not None:
            self.loop.call_soon_threadsafe(self._deliver)

    def _stop_turning(self) -> None:
        """Stop the loop, unless it turns for a cell by the time that this is called."""
        if self._turning:
            self.loop.stop()

    def remember_tasks(self) -> Callable[[], None]:
        """Return a function that registers the loop's tasks with asyncio in a fork.

        Python 3.14 forgets them there. All must be taken out of its linked list before the first
        is put in again.
        """
        tasks: set[asyncio.Task[Any]] = set()
        with suppress(Exception):  # cells may have replaced what asyncio uses
            tasks = asyncio.all_tasks(self.loop)

        def register() -> None:
            with suppress(Exception):
                for task in tasks:
                    _unregister_task(task)
                for task in tasks:
                    _register_task(task)

        return register

    def resume(self) -> int:
        """Make the loop usable in a copy that takes over; cancel its tasks and return how many.

        The copy gets a selector and a pipe of its own. It shares the original's, by which each
        would wake the other.
        """
        self._turning = False
        if vars(self.loop).get("_thread_id") is not None:  # it turned in a subshell's thread
            vars(self.loop)["_thread_id"] = None
        if not is_sound(self.loop):
            self._renew()
            return 0
        tasks = [task for task in asyncio.all_tasks(self.loop) if not task.done()]
        lost_count = len(tasks)
        try:
            lost_count += self.loop.take_over()
            self.readers.forget(self.loop)
            for task in tasks:
                task.cancel()
        except Exception:
            self._renew()
        return lost_count

    def _ensure_sound(self) -> None:
        if not is_sound(self.loop):
            self._renew()

    def _renew(self) -> None:
        """Replace a spoilt loop, whose tasks are lost."""
        spoilt, self.loop = self.loop, _new_loop()
        self.readers.forget(spoilt)
        asyncio.set_event_loop(self.loop)
        with suppress(Exception):
            GuestLoop.close(spoilt)


def allow_nested_run() -> None:
    """Make ``asyncio.run`` work in a plain cell, where a loop is marked as running.

    Called in the zygote, before any module takes a reference to ``asyncio.run``. In a cell that
    awaits it still raises, as it does everywhere.
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


# --- the language layer: what cells can do with a loop -------------------------------------------

#: Methods that are refused in asyncio's own classes: nothing in a guest needs them.
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
#: The same for private methods, by how their names begin. Each uses a descriptor that an attribute
#: of the loop names, and a cell can set that attribute.
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

    Used where the language layer is on. Cells may get hold of their loop, as ``get_running_loop``
    returns the real one. So methods that reach such things are refused, and the loop's own sockets
    and selector are kept outside of its ``__dict__``; their names are among those that cells can't
    use. Call once, after all classes of loops were made and before any loop is.
    """
    for loop_class in _CLASSES:
        for name in list(loop_class.__dict__):
            if name in _REFUSED or (name.startswith(_REFUSED_PRIVATE) and name != _NEEDED):
                setattr(loop_class, name, _refused_method(name))
    for name in _HIDDEN:
        # The values are here, and in no ``__dict__``.
        values: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        hidden = property(values.__getitem__, values.__setitem__)
        setattr(selector_events.BaseSelectorEventLoop, name, hidden)
    _refuse_subclasses()


def _refuse_subclasses() -> None:
    """Refuse classes of loops that cells make: their attributes could replace the hidden ones."""
    base: Any = base_events.BaseEventLoop
    loop_classes = {base}
    waiting = [base]
    while waiting:
        subclasses = waiting.pop().__subclasses__()
        loop_classes.update(subclasses)
        waiting += subclasses
    original_init = base.__init__
    known_classes = frozenset(loop_classes)

    def refuse_subclass(_cls: type, /, **_keys: object) -> None:
        raise _no_operation("a class of loops")

    def init_known(self: Any) -> None:
        # Checked here, too: another base class may define __init_subclass__ and not call ours.
        if type(self) not in known_classes:
            raise _no_operation("a class of loops")
        original_init(self)

    base.__init_subclass__ = classmethod(refuse_subclass)
    base.__init__ = init_known


def _refused_method(name: str) -> Callable[..., Any]:
    def refused(*_args: object, **_kwargs: object) -> None:
        raise _no_operation(f"loop.{name}")

    refused.__name__ = refused.__qualname__ = name
    return refused


def _no_operation(operation: str) -> OperationViolation:
    why = "reaches processes, sockets or descriptors"
    remedy = "Ask the host for an operation."
    return OperationViolation("operation-not-allowed", operation, why, remedy)
