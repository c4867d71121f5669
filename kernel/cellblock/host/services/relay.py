"""The relay: the process that continues guests' connections to listed hosts, and the host's end.

In a session's own network each listed host is a *neighbour*: an address at which a socket listens
(``guest.confine.own_network``). The zygote sends these sockets to the host, and the host sends them
to the relay, which accepts the connections. The socket that a connection came to says which host is
meant, so nothing that a guest wrote is read. The relay looks the host's name up, judges the
addresses (``addresses``), connects to one of those very addresses, and copies bytes both ways until
both sides have ended::

    guest --> listening socket --> look-up --> judge --> connect --> copy
              (its network)        in a thread  refused: reset, and the user is told why

A guest that does not read holds up its own connection only. One that opens many waits for its turn
(``Pace``, ``MAX_CONNECTIONS``). The process ends with the host.

The host's end (``Relay``) starts the process, gives it the sockets of each zygote, counts the
connections for the audit log, and tells the user about hosts that were not reached.
"""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import resource
import select
import socket
import struct
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from threading import Semaphore, Thread
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeVar

from msgspec.structs import replace

from cellblock.host.guests.spawn import end_with_host, protect_host, set_process_name
from cellblock.host.guests.worker_process import Worker
from cellblock.host.services.addresses import Allowlist, read
from cellblock.policy.network import LOCALHOST, LOOPBACK
from cellblock.wire import frames
from cellblock.wire.messages import Message, Neighbour

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import msgspec

    from cellblock.host.reactor import Reactor
    from cellblock.policy.network import IPAddress

    LookUp = Callable[[str], Iterable[str]]


# --- messages between host and relay, over a socket of their own ------------------------------


class Entries(Message, frozen=True, kw_only=True):
    """The hosts that the policy lists: the first message, and sent again when it lists fewer."""

    entries: tuple[str, ...]


class Listener(Message, frozen=True, kw_only=True):
    """Continue connections at the socket that travels with this frame to this neighbour's host."""

    neighbour: Neighbour


class Came(Message, frozen=True, kw_only=True):
    """A guest has connected. Sent before the connection is accepted, so that ``came`` sees it."""


class Judged(Message, frozen=True, kw_only=True):
    """The relay connects to an address for a guest, or refuses to: then ``why`` is for the user.

    ``name`` is the listed name that was looked up, empty for a listed address.
    """

    verdict: Literal["reached", "refused"]
    host: str
    port: int
    name: str = ""
    why: str = ""

    def __str__(self) -> str:
        """Return the address as audit records show it: ``93.184.216.34:443 (example.org)``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port} ({self.name})" if self.name else f"{host}:{self.port}"


class Failed(Message, frozen=True, kw_only=True):
    """A listed host could not be reached. ``why`` is a text for the user."""

    why: str


ToRelay = Entries | Listener
FromRelay = Came | Judged | Failed


# --- the host's end ---------------------------------------------------------------------------

#: Relay processes in a row that may be lost before one has sent a message.
MAX_FAILED_STARTS: Final = 3
#: Addresses of each verdict that have a count of their own.
MAX_COUNTED: Final = 50
#: Failures that the user is told about after one cell.
MAX_TOLD: Final = 5


@dataclass(slots=True)
class RelayCounts:
    """Connections since the last report, by address; ``others`` counts those to further ones.

    ``shared``: several sessions had the network, so the guests of any may have connected.
    """

    reached: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    others: int = 0
    shared: bool = False

    def __bool__(self) -> bool:
        return bool(self.reached or self.refused or self.others)

    def add(self, message: Judged) -> None:
        """Count a connection that was reached or refused."""
        counts = self.reached if message.verdict == "reached" else self.refused
        address = str(message)
        if address in counts or len(counts) < MAX_COUNTED:
            counts[address] += 1
        else:
            self.others += 1


@dataclass(eq=False, slots=True)
class RelayUser:
    """A session that uses a relay: ``report`` gets its counts, ``tell`` shows the user a text."""

    report: Callable[[RelayCounts], None] = lambda _counts: None
    tell: Callable[[str], None] = lambda _text: None
    #: Connections since the last report.
    counts: RelayCounts = field(default_factory=RelayCounts)
    #: Failures to tell the user about, in order.
    told: dict[str, None] = field(default_factory=dict)


class Relay:
    """The host's end of a relay process, which runs while the policy lists a host.

    A process that is lost is replaced. A sandbox and its forks have one zygote, one network and one
    relay, which the last of them to leave ends. Nobody knows then whose guest connects, so each
    session gets all counts and failures.
    """

    def __init__(
        self,
        reactor: Reactor,
        entries: tuple[str, ...],
        user: RelayUser | None = None,
    ) -> None:
        self._reactor = reactor
        self._entries: tuple[str, ...] = ()
        self._worker: Worker[FromRelay] | None = None
        self._failed_starts = self._came = 0
        self._users = [user or RelayUser()]
        #: The sockets of the zygote that is served, as ``serve`` got them.
        self._source: Mapping[Neighbour, int] | None = None
        #: Duplicates of these sockets, only for the hosts that are listed now.
        self._listeners: dict[Neighbour, socket.socket] = {}
        if entries:
            self._entries = entries
            # Started early, so that a session need not wait; tried again by serve().
            with contextlib.suppress(OSError):
                self._running()

    @property
    def is_shared(self) -> bool:
        """Whether several sessions share the relay."""
        return len(self._users) > 1

    def join(self, user: RelayUser) -> Relay:
        """Add a session, and return self."""
        self._users.append(user)
        return self

    def leave(self, user: RelayUser) -> None:
        """Remove a session. The last one ends the process and all connections."""
        if len(self._users) == 1:
            self.close()
        self._users.remove(user)

    def serves(self, listeners: Mapping[Neighbour, int]) -> bool:
        """Return whether the sockets of this zygote are the ones that are served."""
        return listeners is self._source

    def serve(self, listeners: Mapping[Neighbour, int]) -> None:
        """Serve the sockets of a zygote, and no longer those of another."""
        if not self._entries or self.serves(listeners):
            return
        self._end_worker()
        self._source = listeners
        allowed = Allowlist(self._entries)
        for neighbour, fd in listeners.items():
            if allowed.has(neighbour):
                self._listeners[neighbour] = socket.socket(fileno=os.dup(fd))
        self._give_listeners()

    def narrow_to(self, entries: tuple[str, ...]) -> None:
        """Serve fewer hosts. Connections to the others are reset, and new ones fail."""
        if entries == self._entries:
            return
        for user in self._users:
            self.account(user)
        self._entries = entries
        allowed = Allowlist(entries)
        for neighbour in [each for each in self._listeners if not allowed.has(each)]:
            _stop(self._listeners.pop(neighbour))
        if not entries:
            self._end_worker()
        elif self._worker is not None:
            self._worker.send(Entries(entries=entries))

    @property
    def has_hosts(self) -> bool:
        """Whether a zygote is served, and any of its hosts is still listed."""
        return bool(self._listeners)

    def came(self) -> int:
        """Return a number that differs from the last call's if guests have connected meanwhile."""
        poll = select.poll()
        for listener in self._listeners.values():
            poll.register(listener, select.POLLIN)
        # In this order: the relay sends Came before it accepts, so a connection that the poll no
        # longer sees has its message in the socket that is read after it.
        waits = bool(poll.poll(0))
        self._read()
        return self._came + waits

    def account(self, user: RelayUser) -> None:
        """Report the connections since the last report. Called when a cell has ended."""
        self._read()
        counts, user.counts = user.counts, RelayCounts()
        user.report(counts)

    def say(self, user: RelayUser) -> None:
        """Tell a session which hosts were not reached since the last call, and why."""
        self._read()
        failures = list(user.told)
        user.told.clear()
        subject = "a sandbox and its forks" if self.is_shared else ""
        for text in failures:
            user.tell(f"{subject} can't reach {text}".lstrip())

    def close(self) -> None:
        """End the process, and all connections."""
        self.narrow_to(())

    def _end_worker(self) -> None:
        """End the process if it has served a zygote or nothing is listed, and close the sockets."""
        worker, self._worker, self._source = self._worker, None, None
        if worker is not None and (self._listeners or not self._entries):
            worker.kill()
        else:
            self._worker = worker  # it has served nobody yet, so the next zygote can have it
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()

    def _running(self) -> Worker[FromRelay]:
        """Return the process, started if there is none. Raises OSError."""
        if self._worker is None:
            self._worker = Worker(
                self._reactor, __name__, FromRelay, self._on_message, self._on_lost
            )
            self._worker.send(Entries(entries=self._entries))
        return self._worker

    def _give_listeners(self) -> None:
        """Give the sockets to the process, or close them if none can be started: no guest waits."""
        try:
            worker = self._running()
            for neighbour, listener in self._listeners.items():
                worker.send_with(Listener(neighbour=neighbour), [listener.fileno()])
        except OSError as error:
            for user in self._users:
                user.tell(f"can't reach listed hosts: {error.strerror}")
            self._give_up()

    def _give_up(self) -> None:
        for listener in self._listeners.values():
            _stop(listener)
        self._listeners.clear()

    def _read(self) -> None:
        """Handle the messages that the process has sent until now."""
        if self._worker is not None:
            self._worker.read_rest()

    def _on_message(self, message: FromRelay) -> None:
        self._failed_starts = 0
        if isinstance(message, Came):
            self._came += 1
            return
        for user in self._users:
            if message.why and len(user.told) < MAX_TOLD:
                user.told[message.why] = None
            if isinstance(message, Judged):
                user.counts.add(message)
                user.counts.shared = user.counts.shared or self.is_shared

    def _on_lost(self, _why: str) -> None:
        """Start another process, a few times at most. All connections of the last have ended."""
        self._worker = None
        self._failed_starts += 1
        if self._failed_starts < MAX_FAILED_STARTS:
            self._give_listeners()
        else:
            self._give_up()


def _stop(listener: socket.socket) -> None:
    """Stop listening at a socket, also for other processes that hold it, and close it."""
    with listener, contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)


# --- the process: names -----------------------------------------------------------------------

#: Names that are looked up at the same time.
MAX_LOOK_UPS: Final = 8
#: Seconds for which the result of a look-up is used again.
CACHE_SECONDS: Final = 5.0


def look_up(name: str) -> list[str]:
    """Return the addresses of a name from this machine's resolver. Raises gaierror."""
    answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return list(dict.fromkeys(str(address[0]) for *_, address in answers))


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a look-up: the addresses of a name, or ``why`` it has none."""

    name: str
    addresses: tuple[str, ...] = ()
    why: str = ""


class Names:
    """The look-ups of listed names, each in a thread, since getaddrinfo(3) blocks.

    A name is looked up at most once in ``CACHE_SECONDS``, however often guests connect to it. The
    server waits until the pipe ``woken`` has a byte, then calls ``found``.
    """

    def __init__(self, look_up: LookUp) -> None:
        self._look_up = look_up
        self._room = Semaphore(MAX_LOOK_UPS)
        #: The last result for each name, and its monotonic time.
        self._known: dict[str, tuple[float, Found]] = {}
        #: Names that are being looked up.
        self._pending: set[str] = set()
        self._answers = queue.SimpleQueue[Found]()
        self.woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def ask(self, name: str) -> Found | None:
        """Return the result for a name if it is known; otherwise look it up and return None."""
        looked_up_at, result = self._known.get(name, (-CACHE_SECONDS, Found(name)))
        if time.monotonic() - looked_up_at < CACHE_SECONDS:
            return result
        if name not in self._pending:
            self._pending.add(name)
            Thread(target=self._look_up_name, args=[name], name="look-up", daemon=True).start()
        return None

    def found(self) -> list[Found]:
        """Return the results since the last call."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.woken, 1_024)
        results = list[Found]()
        with contextlib.suppress(queue.Empty):
            while True:
                results.append(self._answers.get_nowait())
        for each in results:
            self._known[each.name] = time.monotonic(), each
            self._pending.discard(each.name)
        return results

    def _look_up_name(self, name: str) -> None:
        """Look a name up, in a thread of its own."""
        try:
            with self._room:
                result = Found(name, tuple(self._look_up(name)))
        except socket.gaierror as error:
            result = Found(name, why=str(error.strerror)[:_LONGEST_WHY])
        except Exception as error:  # without any result, the connection would never end
            result = Found(name, why=type(error).__name__)
        self._answers.put(result)
        with contextlib.suppress(BlockingIOError):  # a full pipe wakes the server, too
            os.write(self._wake, b"x")


# --- the process: connections -----------------------------------------------------------------

_LONGEST_WHY: Final = 500
#: The most bytes in the pipe of one direction of a connection.
PIPE_BYTES: Final = 256 << 10
#: F_SETPIPE_SZ (fcntl(2)), SPLICE_F_MOVE and SPLICE_F_NONBLOCK (splice(2)).
_SET_PIPE_SIZE: Final = 1031
_SPLICE: Final = 1 | 2
#: Empty pipes that are kept for the next use.
_MOST_PIPES: Final = 32
#: Times that a flow fills and empties its pipe before other flows have their turn.
_MOST_TURNS: Final = 4


class Flow:
    """One direction of a connection: passes bytes from ``source`` to ``target``, then the end.

    The bytes go through a pipe, so that they need not be copied to this process and back
    (splice(2)). A flow has a pipe only while bytes are on their way.
    """

    def __init__(self, source: socket.socket, target: socket.socket, pipes: Pipes) -> None:
        self.source = source
        self.target = target
        self._pipes = pipes
        #: Bytes that are in the pipe now, and that have gone in and out of it until now.
        self.held = self.moved = 0
        self._pipe: tuple[int, int] | None = None
        #: Whether the source has ended, and whether the target knows.
        self._has_ended = self.is_done = False

    @property
    def reads(self) -> bool:
        """Whether the flow waits for bytes from its source."""
        return not self.held and not self._has_ended

    def move(self) -> None:
        """Move the bytes that can be moved now. Raises OSError if either side has gone."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(_MOST_TURNS):
                if self.reads:
                    self._fill()
                if self.held:
                    self._empty()
                if self._has_ended:
                    self.target.shutdown(socket.SHUT_WR)
                    self.is_done = True
                    break
        if not self.held:
            self.close()

    def _fill(self) -> None:
        self._pipe = self._pipe or self._pipes.take()
        self.held = os.splice(self.source.fileno(), self._pipe[1], PIPE_BYTES, flags=_SPLICE)
        self.moved += self.held
        self._has_ended = not self.held

    def _empty(self) -> None:
        while self.held and self._pipe is not None:
            out = self.target.fileno()
            byte_count = os.splice(self._pipe[0], out, self.held, flags=_SPLICE)
            self.held -= byte_count
            self.moved += byte_count

    def close(self) -> None:
        """Give the pipe back, if there is one."""
        if self._pipe is not None:
            self._pipes.give_back(self._pipe, is_empty=not self.held)
            self._pipe = None


def joined(near: socket.socket, far: socket.socket, pipes: Pipes) -> tuple[Flow, Flow]:
    """Return both directions of a connection whose sockets are connected."""
    for sock in (near, far):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Flow(near, far, pipes), Flow(far, near, pipes)


def move(flows: Iterable[Flow]) -> bool:
    """Move the bytes that can be moved now; return False if either side has gone."""
    try:
        for flow in flows:
            if not flow.is_done:
                flow.move()
    except OSError:  # or no pipe can be made
        return False
    return True


class Pipes:
    """A stock of empty pipes, for whichever flow needs one."""

    def __init__(self) -> None:
        self._free: list[tuple[int, int]] = []

    def take(self) -> tuple[int, int]:
        """Return an empty pipe. Raises OSError if none can be made."""
        if self._free:
            return self._free.pop()
        import fcntl  # noqa: PLC0415 - there is no relay where there is no such module

        pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # Beyond the user's limit on memory for pipes (pipe(7)) it stays smaller.
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe[1], _SET_PIPE_SIZE, PIPE_BYTES)
        return pipe

    def give_back(self, pipe: tuple[int, int], *, is_empty: bool) -> None:
        """Keep an empty pipe for the next flow, or close it."""
        if is_empty and len(self._free) < _MOST_PIPES:
            self._free.append(pipe)
            return
        for fd in pipe:
            os.close(fd)


C = TypeVar("C")


class Sockets(Generic[C]):
    """The sockets of a server's connections: the owner of each, and the events waited for."""

    def __init__(self, epoll: select.epoll) -> None:
        self._epoll = epoll
        self._owners: dict[int, C] = {}
        self._waited_for: dict[int, int] = {}
        #: Sockets to close when all events of a round are served. If they were closed at once, a
        #: new socket could get the number of an old one, and with it an event of the same round.
        self._forgotten: list[socket.socket] = []

    def __bool__(self) -> bool:
        """Return whether any socket has an owner or is waited for."""
        return bool(self._owners or self._waited_for)

    def owner(self, fd: int) -> C | None:
        """Return the connection that a descriptor belongs to, or None."""
        return self._owners.get(fd)

    def add(self, sock: socket.socket, connection: C, events: int) -> None:
        """Add a connection's socket, and wait for events at it."""
        self._owners[sock.fileno()] = connection
        self.wait(sock, events)

    def wait(self, sock: socket.socket, events: int, *, without_hang_up: bool = False) -> None:
        """Wait for these events at a socket, and no others.

        epoll also reports errors and hang-ups of each socket that it has. ``without_hang_up``: if
        there are no events to wait for, don't wait for those either.
        """
        fd = sock.fileno()
        events_before = self._waited_for.get(sock.fileno())
        if events == 0 and without_hang_up:
            if events_before is not None:
                self._epoll.unregister(fd)
                del self._waited_for[fd]
            return
        if events_before is None:
            self._epoll.register(fd, events)
        elif events_before != events:
            self._epoll.modify(fd, events)
        self._waited_for[fd] = events

    def forget(self, sock: socket.socket, *, reset: bool = False) -> None:
        """Stop waiting for a socket, and close it soon. With ``reset``, its peer gets an error."""
        if reset:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.wait(sock, 0, without_hang_up=True)
        self._owners.pop(sock.fileno(), None)
        self._forgotten.append(sock)

    def close_later(self, sock: socket.socket) -> None:
        """Close a socket that is not waited for when all events of this round are served."""
        self._forgotten.append(sock)

    def close_forgotten(self) -> None:
        """Close the forgotten sockets. Called when all events of a round are served."""
        while self._forgotten:
            self._forgotten.pop().close()


@dataclass(eq=False, slots=True)
class Connection:
    """A guest's connection: ``near`` is the guest's socket, ``far`` the one to the listed host.

    ``far`` is None while the host's name is looked up; ``flows`` is empty until both are joined.
    """

    neighbour: Neighbour
    near: socket.socket
    #: Addresses that are yet to be tried, and the one that ``far`` is for.
    targets: list[IPAddress] = field(default_factory=list)
    address: IPAddress | None = None
    far: socket.socket | None = None
    #: The monotonic time at which an attempt to connect, or a guest that has left, is given up.
    give_up_at: float = 0.0
    flows: tuple[Flow, ...] = ()
    #: Whether the guest has stopped sending: it has closed its socket, or half of it.
    has_left: bool = False
    #: Bytes that had been moved at the last look.
    moved: int = 0

    def sockets(self) -> list[socket.socket]:
        """Return both sockets, or the only one there is."""
        return [self.near] if self.far is None else [self.near, self.far]


# --- the process: serving ---------------------------------------------------------------------

READ_SIZE: Final = 1 << 16
#: Connections of one session. Further ones wait until one of these has ended.
MAX_CONNECTIONS: Final = 256
#: Connections that are accepted in a slot of so many seconds. Further ones wait for the next slot.
MAX_PER_SLOT: Final = 200
SLOT_SECONDS: Final = 0.1
#: Seconds for an address to accept a connection: if more are left to try, and for the last one.
FIRST_SECONDS: Final = 5.0
LAST_SECONDS: Final = 60.0
#: Seconds without a byte after which a connection ends whose guest has stopped sending.
LEFT_SECONDS: Final = 60.0
#: Descriptors of one connection (two sockets and two pipes), and those kept for other uses.
FILES_EACH: Final = 6
SPARE_FILES: Final = 64
#: Seconds for which Linux keeps the port of a connection that has ended (TIME_WAIT).
PORT_SECONDS: Final = 60.0
#: Where Linux has the range of ports for outgoing connections (ip(7)), and its default.
_PORT_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL_PORTS: Final = 32_768, 60_999
#: Bytes of a socket's buffer each way. Linux doubles the number, and no longer enlarges the buffer.
BUFFER_BYTES: Final = 256 << 10
#: Probes whether a guest still exists. If its FIN waits behind bytes that are not read, nothing
#: else would show that it has gone.
KEEP_ALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
)
#: struct linger: closing resets (socket(7)).
RESET: Final = struct.pack("ii", 1, 0)


def most_per_port_seconds() -> int:
    """Return how many connections a session may make in ``PORT_SECONDS``.

    That is a quarter of the machine's ports, since the user's other programs need some, too.
    """
    first, last = _USUAL_PORTS
    with contextlib.suppress(OSError, ValueError):
        first, last = map(int, _PORT_RANGE.read_text(encoding="ascii").split())
    return max(1, (last - first + 1) // 4)


class Pace:
    """The pace at which connections are accepted.

    At most ``MAX_PER_SLOT`` in a slot, and ``most`` in ``PORT_SECONDS``. Times are monotonic.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        #: Connections in the current slot, when it ends, and whether no more are accepted in it.
        self._taken = 0
        self._slot_ends = 0.0
        self._rests = False
        #: When each earlier slot ended and how many were accepted in it, and their sum.
        self._slots = deque[tuple[float, int]]()
        self._before = 0

    def take(self) -> None:
        """Count a connection."""
        self._taken += 1

    def rest(self) -> None:
        """Accept no connection until the next slot."""
        self._rests = True

    def allows(self, now: float) -> bool:
        """Return whether one more connection may be accepted at this time."""
        if now >= self._slot_ends:
            if self._taken:
                self._slots.append((now, self._taken))
                self._before += self._taken
            self._taken, self._slot_ends, self._rests = 0, now + SLOT_SECONDS, False
        while self._slots and now - self._slots[0][0] >= PORT_SECONDS:
            self._before -= self._slots.popleft()[1]
        return not self._rests and self._taken < min(MAX_PER_SLOT, self._most - self._before)

    def next_look(self) -> float:
        """Return the time at which more may be accepted, if none may be now."""
        if self._slots and self._before >= self._most:
            return self._slots[0][0] + PORT_SECONDS
        return self._slot_ends


class Server:
    """The server of one session's guests: one thread around an epoll, and threads for look-ups.

    ``control`` is the socket to the host, which sends the list of hosts and the sockets.
    """

    def __init__(self, control: socket.socket, look_up: LookUp = look_up) -> None:
        self._control = control
        self._names = Names(look_up)
        self._pipes = Pipes()
        self._allowed = Allowlist(())
        self._splitter = frames.Splitter()
        self._decode: frames.Decoder[ToRelay] = frames.Decoder(ToRelay)
        self._epoll = select.epoll()
        for fd in (control.fileno(), self._names.woken):
            self._epoll.register(fd, select.EPOLLIN)
        #: Descriptors that came before their ``Listener`` was complete, in order.
        self._received: list[int] = []
        self._listeners: dict[int, tuple[socket.socket, Neighbour]] = {}
        self._sockets: Sockets[Connection] = Sockets(self._epoll)
        self._all: set[Connection] = set()
        #: Connections whose ``give_up_at`` counts: they are connecting, or their guest has left.
        self._timed: set[Connection] = set()
        self._files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._pace = Pace(most_per_port_seconds())
        #: Whether the listeners are in the epoll.
        self._is_accepting = True

    def serve(self) -> None:
        """Serve until the host hangs up."""
        while True:
            for fd, events in self._epoll.poll(self._next_look()):
                if fd == self._control.fileno():
                    if not self._read_control():
                        return
                elif fd == self._names.woken:
                    self._read_look_ups()
                elif fd in self._listeners:
                    self._accept(fd)
                elif (connection := self._sockets.owner(fd)) is not None:
                    if fd == connection.near.fileno() and events & select.EPOLLRDHUP:
                        connection.has_left = True
                    self._serve(connection, events)
            self._apply_time()
            self._sockets.close_forgotten()

    # --- time ---------------------------------------------------------------------------------

    def _next_look(self) -> float | None:
        """Return the seconds until a time is due, None without one: the timeout of the epoll."""
        times_due = [each.give_up_at for each in self._timed]
        if not self._is_accepting and self._has_room():
            times_due.append(self._pace.next_look())
        return max(0.0, min(times_due) - time.monotonic()) if times_due else None

    def _apply_time(self) -> None:
        """Accept new connections or not, and give up those whose time is over."""
        now_seconds = time.monotonic()
        is_accepting = self._pace.allows(now_seconds) and self._has_room()
        if is_accepting != self._is_accepting:
            self._is_accepting = is_accepting
            for fd in self._listeners:
                if is_accepting:
                    self._epoll.register(fd, select.EPOLLIN)
                else:
                    self._epoll.unregister(fd)
        for connection in [each for each in self._timed if each.give_up_at <= now_seconds]:
            if connection.flows:
                self._end(connection, reset=True)
            else:
                self._try_next(connection, errno.ETIMEDOUT)

    def _has_room(self) -> bool:
        """Return whether one more connection is within the bounds, descriptors included."""
        files = self._files - SPARE_FILES - len(self._listeners)
        return len(self._all) < min(MAX_CONNECTIONS, max(1, files // FILES_EACH))

    # --- the host -----------------------------------------------------------------------------

    def _read_control(self) -> bool:
        """Handle messages of the host; return False if it has hung up."""
        try:
            data, fds, *_ = socket.recv_fds(self._control, READ_SIZE, 16)
        except OSError:
            return False
        self._received += fds
        for payload in self._splitter.feed(data):
            message = self._decode(payload)
            if isinstance(message, Entries):
                self._narrow_to(message.entries)
            elif self._received:
                self._listen(message.neighbour, self._received.pop(0))
        return bool(data)

    def _narrow_to(self, entries: tuple[str, ...]) -> None:
        """Serve only these entries: reset connections to other hosts, or to other addresses."""
        self._allowed = Allowlist(entries)
        for fd, (_, neighbour) in list(self._listeners.items()):
            if not self._allowed.has(neighbour):
                self._stop_listening(fd)
        for connection in list(self._all):
            may = partial(self._may_reach, connection)
            connection.targets = list(filter(may, connection.targets))
            address = connection.address
            if not self._allowed.has(connection.neighbour) or not (address is None or may(address)):
                self._end(connection, reset=True)

    def _may_reach(self, connection: Connection, address: IPAddress) -> bool:
        """Return whether the list still lets a connection's host be reached at an address."""
        neighbour = connection.neighbour
        if not neighbour.name:
            return self._allowed.has(neighbour)
        if neighbour.name == LOCALHOST:
            return self._allowed.has(replace(neighbour, address=str(address)))
        good, _ = self._allowed.reachable([str(address)], neighbour.port)
        return bool(good)

    def _listen(self, neighbour: Neighbour, fd: int) -> None:
        os.set_inheritable(fd, False)
        listener = socket.socket(fileno=fd)
        listener.setblocking(False)
        self._listeners[fd] = listener, neighbour
        if self._is_accepting:
            self._epoll.register(fd, select.EPOLLIN)

    def _stop_listening(self, fd: int) -> None:
        listener, _ = self._listeners.pop(fd)
        if self._is_accepting:
            self._epoll.unregister(fd)
        _stop(listener)

    def _report(self, message: msgspec.Struct) -> None:
        with contextlib.suppress(OSError):  # the host has gone: _read_control will see that
            self._control.sendall(frames.encode(message))

    # --- a connection -------------------------------------------------------------------------

    def _accept(self, fd: int) -> None:
        listener, neighbour = self._listeners[fd]
        self._report(Came())
        try:
            near, _ = listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno == errno.EINVAL:  # the host has shut the socket down
                self._stop_listening(fd)
            self._pace.rest()  # for lack of descriptors, say: trying again at once would spin
            return
        self._pace.take()
        near.setblocking(False)
        bound_buffers(near)
        for level, option, value in KEEP_ALIVE:
            near.setsockopt(level, option, value)
        connection = Connection(neighbour, near)
        self._all.add(connection)
        self._sockets.add(near, connection, 0)
        if neighbour.name in ("", LOCALHOST):
            # A server on this machine may listen at one address of localhost only, so both are
            # tried.
            loopback_addresses = LOOPBACK if neighbour.name else ()
            addresses = dict.fromkeys((neighbour.address, *loopback_addresses))
            listed = (
                each for each in addresses if self._allowed.has(replace(neighbour, address=each))
            )
            self._begin(connection, listed)
        elif (result := self._names.ask(neighbour.name)) is not None:
            self._on_found(connection, result)

    def _read_look_ups(self) -> None:
        """Go on with the connections whose names have been looked up."""
        for result in self._names.found():
            for each in [each for each in self._all if each.neighbour.name == result.name]:
                if each.far is None:
                    self._on_found(each, result)

    def _on_found(self, connection: Connection, result: Found) -> None:
        """Begin to connect to the addresses of a name that may be reached, or reset the guest."""
        name = result.name
        port = connection.neighbour.port
        entry = connection.neighbour.entry
        good, bad = self._allowed.reachable(result.addresses, port)
        if good:
            self._begin(connection, map(str, good))
            return
        if bad:
            why = f"{entry}: it is at {bad}, which is not a public address; list that, too"
            self._report(Judged(verdict="refused", host=bad, port=port, name=name, why=why))
        else:
            self._report(Failed(why=f"{entry}: {result.why or 'it has no address'}"))
        self._end(connection, reset=True)

    def _begin(self, connection: Connection, addresses: Iterable[str]) -> None:
        connection.targets = [each for each in map(read, addresses) if each is not None]
        self._try_next(connection, errno.EHOSTUNREACH)

    def _try_next(self, connection: Connection, error: int) -> None:
        """Connect to the next address. ``error`` is the last one's, told if none is left."""
        self._forget_far(connection)
        neighbour = connection.neighbour
        while connection.targets:
            target = connection.targets.pop(0)
            host, name = str(target), neighbour.name
            self._report(Judged(verdict="reached", host=host, port=neighbour.port, name=name))
            try:
                connection.far = _connecting(target, neighbour.port)
            except OSError as exc:
                error = exc.errno or errno.EMFILE
                continue
            connection.address = target
            seconds = FIRST_SECONDS if connection.targets else LAST_SECONDS
            connection.give_up_at = time.monotonic() + seconds
            self._timed.add(connection)
            self._sockets.add(connection.far, connection, select.EPOLLOUT)
            return
        self._report(Failed(why=f"{neighbour.entry}: {os.strerror(error)}"))
        self._end(connection, reset=True)

    def _serve(self, connection: Connection, events: int) -> None:
        if connection.far is None or not connection.flows:
            self._go_on_connecting(connection, events)
        elif not move(connection.flows) or events & (select.EPOLLERR | select.EPOLLPRI):
            if events & select.EPOLLPRI:
                why = f"{connection.neighbour.entry}: out-of-band data, which is not passed on"
                self._report(Failed(why=why))
            self._end(connection, reset=True)
            return
        if connection.flows:
            self._wait_for_more(connection)

    def _wait_for_more(self, connection: Connection) -> None:
        """Wait for the events that move more bytes of a joined connection, or end it."""
        up, down = connection.flows
        if up.is_done and down.is_done:
            self._end(connection)
            return
        for out, back in ((up, down), (down, up)):
            # At each socket, wait for bytes to read in one direction, and for room to write in the
            # other. An urgent byte (EPOLLPRI, tcp(7)) ends the connection, because nothing behind
            # it can be read.
            events = select.EPOLLIN | select.EPOLLPRI if out.reads else 0
            events |= select.EPOLLOUT if back.held else 0
            # A guest may leave while nothing is read from it.
            events |= select.EPOLLRDHUP if out is up and not connection.has_left else 0
            self._sockets.wait(out.source, events, without_hang_up=True)
        moved = up.moved + down.moved
        if connection.has_left and (connection not in self._timed or moved != connection.moved):
            connection.give_up_at = time.monotonic() + LEFT_SECONDS
            self._timed.add(connection)
        connection.moved = moved

    def _go_on_connecting(self, connection: Connection, events: int) -> None:
        """Join both sockets if the host has accepted, try the next address on an error.

        End the connection if the guest has gone meanwhile.
        """
        far = connection.far
        if far is not None:
            error = far.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                self._try_next(connection, error)
                return
            if is_connected(far):
                connection.targets = []
                self._timed.discard(connection)
                connection.flows = joined(connection.near, far, self._pipes)
                return
        if events & (select.EPOLLHUP | select.EPOLLERR):
            self._end(connection, reset=True)  # the guest has gone

    def _end(self, connection: Connection, *, reset: bool = False) -> None:
        """End a connection. With ``reset``, both sides get an error rather than an orderly end."""
        for flow in connection.flows:
            flow.close()
        for sock in connection.sockets():
            self._sockets.forget(sock, reset=reset)
        self._all.discard(connection)
        self._timed.discard(connection)

    def _forget_far(self, connection: Connection) -> None:
        if connection.far is not None:
            self._sockets.forget(connection.far)
            connection.far = None


def _connecting(address: IPAddress, port: int) -> socket.socket:
    """Return a socket that is connecting to this address; no name is looked up. Raises OSError."""
    family = socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    bound_buffers(sock)
    error = sock.connect_ex((str(address), port))
    if error not in (0, errno.EINPROGRESS):
        sock.close()
        raise OSError(error, os.strerror(error))
    return sock


def bound_buffers(sock: socket.socket) -> None:
    """Bound a socket's buffers: all programs of the machine share the memory for them (tcp(7))."""
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)


def raise_file_limit() -> None:
    """Raise the limit on open files as far as this user may: a connection takes six."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # then there are fewer connections
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def is_connected(sock: socket.socket) -> bool:
    """Return whether a socket is connected."""
    try:
        sock.getpeername()
    except OSError:
        return False
    return True


def main(fd: int, host: int) -> None:
    """Serve until the host, whose pid is given, hangs up."""
    end_with_host(host)
    protect_host()
    set_process_name(b"cb-relay")
    control = socket.socket(fileno=fd)
    control.set_inheritable(False)
    raise_file_limit()
    try:
        Server(control).serve()
    finally:
        os._exit(0)  # without waiting for threads, which may be in the middle of a look-up
