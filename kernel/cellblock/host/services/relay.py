"""The relay: both ends of the process that takes guests' connections to listed hosts further.

In a session's own network each listed host is an address at which a socket listens
(``guest.confine.own_network``). The zygote sends these sockets, and the relay accepts what comes
there. Which host is meant is the socket that a connection came to: nothing is read that a guest
wrote. The relay looks the host's name up, judges what it finds (``addresses``), connects to that
very address, and copies bytes both ways until both sides have ended.

A guest that does not read costs its own connection. One that opens many waits. A connection that
can't be made is reset, and the host tells the user why. The process ends with the host.

The host's end (``Relay``) starts the process, gives it the sockets of each zygote, and counts.
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
    """What the policy lists: first of all, and whenever it lists less."""

    entries: tuple[str, ...]


class Listener(Message, frozen=True, kw_only=True):
    """Take what comes to a socket, which travels with this frame, to this neighbour."""

    neighbour: Neighbour


class Came(Message, frozen=True, kw_only=True):
    """Guests have connected. Sent before the first of these connections is taken."""


class Judged(Message, frozen=True, kw_only=True):
    """A guest's connection goes to an address, or may not: ``why`` says so to the user.

    ``name`` is the listed name that led there.
    """

    verdict: Literal["reached", "refused"]
    host: str
    port: int
    name: str = ""
    why: str = ""

    def __str__(self) -> str:
        """Return the address as records have it: ``93.184.216.34:443 (example.org)``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port} ({self.name})" if self.name else f"{host}:{self.port}"


class Failed(Message, frozen=True, kw_only=True):
    """Nobody answers where a listed host is: ``why`` says so to the user."""

    why: str


ToRelay = Entries | Listener
FromRelay = Came | Judged | Failed


# --- the host's end ---------------------------------------------------------------------------

#: Relays in a row that may end before one has served.
MAX_FAILED_STARTS: Final = 3
#: Addresses of each verdict that are counted by themselves.
MAX_COUNTED: Final = 50
#: Hosts of one cell that the user is told about.
MAX_TOLD: Final = 5


@dataclass(slots=True)
class RelayCounts:
    """How often guests connected to an address since the last report; ``others`` in all.

    ``shared``: guests of several sessions did, which have one network.
    """

    reached: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    others: int = 0
    shared: bool = False

    def __bool__(self) -> bool:
        return bool(self.reached or self.refused or self.others)

    def add(self, message: Judged) -> None:
        """Count a connection."""
        counts = self.reached if message.verdict == "reached" else self.refused
        address = str(message)
        if address in counts or len(counts) < MAX_COUNTED:
            counts[address] += 1
        else:
            self.others += 1


@dataclass(eq=False, slots=True)
class RelayUser:
    """A session that has a relay: ``report`` gets what was connected to, ``tell`` what is said."""

    report: Callable[[RelayCounts], None] = lambda _counts: None
    tell: Callable[[str], None] = lambda _text: None
    #: Since its last report, and since it was told last.
    counts: RelayCounts = field(default_factory=RelayCounts)
    told: dict[str, None] = field(default_factory=dict)


class Relay:
    """A relay for what a policy lists, as long as that is something; replaced if it ends.

    A sandbox and its forks have guests of one zygote, in one network, and one relay: the last of
    them to leave ends it. Whose guest connects nobody knows then, so each is told of all.
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
        #: Whose sockets they are, and our own descriptors of these.
        self._source: Mapping[Neighbour, int] | None = None
        self._listeners: dict[Neighbour, socket.socket] = {}
        if entries:
            self._entries = entries
            with contextlib.suppress(OSError):  # tried again when there is a zygote
                self._running()

    @property
    def is_shared(self) -> bool:
        """Whether several sessions have it."""
        return len(self._users) > 1

    def join(self, user: RelayUser) -> Relay:
        """Return it for one session more."""
        self._users.append(user)
        return self

    def leave(self, user: RelayUser) -> None:
        """Let go of it; of the last session's all connections end."""
        if len(self._users) == 1:
            self.close()
        self._users.remove(user)

    def serves(self, listeners: Mapping[Neighbour, int]) -> bool:
        """Whether it takes connections that come to a zygote's sockets."""
        return listeners is self._source

    def serve(self, listeners: Mapping[Neighbour, int]) -> None:
        """Take connections of a zygote's guests, and no other's; ``listeners`` are its own."""
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
        """Have less be listed: what is not any more is reached no more, and is hung up on."""
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
        """Whether any host is reached."""
        return bool(self._listeners)

    def came(self) -> int:
        """Return a number that is another one if guests have connected since the last question."""
        poll = select.poll()
        for listener in self._listeners.values():
            poll.register(listener, select.POLLIN)
        # In this order: what does not wait there any more was told of before it was taken.
        waits = bool(poll.poll(0))
        self._read()
        return self._came + waits

    def account(self, user: RelayUser) -> None:
        """Report what guests connected to since the last report: all that an ended cell did."""
        self._read()
        counts, user.counts = user.counts, RelayCounts()
        user.report(counts)

    def say(self, user: RelayUser) -> None:
        """Tell a session which listed hosts were not reached since the last call, and why."""
        self._read()
        told = list(user.told)
        user.told.clear()
        by = "a sandbox and its forks" if self.is_shared else ""
        for text in told:
            user.tell(f"{by} can't reach {text}".lstrip())

    def close(self) -> None:
        """End the relay, and all connections."""
        self.narrow_to(())

    def _end_worker(self) -> None:
        worker, self._worker, self._source = self._worker, None, None
        if worker is not None and (self._listeners or not self._entries):
            worker.kill()
        else:
            self._worker = worker  # it has served nobody yet
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()

    def _running(self) -> Worker[FromRelay]:
        if self._worker is None:
            self._worker = Worker(
                self._reactor, __name__, FromRelay, self._on_message, self._on_lost
            )
            self._worker.send(Entries(entries=self._entries))
        return self._worker

    def _give_listeners(self) -> None:
        """Have a relay take what comes. Where there can be none, nobody waits for it."""
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
        """Have another relay take what comes; connections that there were have ended."""
        self._worker = None
        self._failed_starts += 1
        if self._failed_starts < MAX_FAILED_STARTS:
            self._give_listeners()
        else:
            self._give_up()


def _stop(listener: socket.socket) -> None:
    """Have nobody connect to a socket any more, whoever else holds it."""
    with listener, contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)


# --- the process: names -----------------------------------------------------------------------

#: Names that are looked up at once.
MAX_LOOK_UPS: Final = 8
#: Seconds for which an answer is used again.
CACHE_SECONDS: Final = 5.0


def look_up(name: str) -> list[str]:
    """Return the addresses of a name, as this machine's resolver has them. Raises gaierror."""
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


@dataclass(frozen=True, slots=True)
class Found:
    """Where a name is, or ``why`` it is nowhere."""

    name: str
    addresses: tuple[str, ...] = ()
    why: str = ""


class Names:
    """Looks listed names up, in threads, since getaddrinfo(3) blocks.

    However often guests ask, a name is looked up once at a time, and once in ``CACHE_SECONDS``. A
    byte comes through the pipe ``woken`` when ``found`` has something.
    """

    def __init__(self, look_up: LookUp) -> None:
        self._look_up, self._room = look_up, Semaphore(MAX_LOOK_UPS)
        self._known: dict[str, tuple[float, Found]] = {}
        self._asked: set[str] = set()
        self._answers = queue.SimpleQueue[Found]()
        self.woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def ask(self, name: str) -> Found | None:
        """Return where a name is if that is known; else have it looked up."""
        when, found = self._known.get(name, (-CACHE_SECONDS, Found(name)))
        if time.monotonic() - when < CACHE_SECONDS:
            return found
        if name not in self._asked:
            self._asked.add(name)
            Thread(target=self._find, args=[name], name="look-up", daemon=True).start()
        return None

    def found(self) -> list[Found]:
        """Return what was found since the last call."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.woken, 1_024)
        found = list[Found]()
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._answers.get_nowait())
        for each in found:
            self._known[each.name] = time.monotonic(), each
            self._asked.discard(each.name)
        return found

    def _find(self, name: str) -> None:
        try:
            with self._room:
                found = Found(name, tuple(self._look_up(name)))
        except socket.gaierror as error:
            found = Found(name, why=str(error.strerror)[:_LONGEST_WHY])
        except Exception as error:  # whatever it is, the connection has an end
            found = Found(name, why=type(error).__name__)
        self._answers.put(found)
        with contextlib.suppress(BlockingIOError):  # full: it will be read
            os.write(self._wake, b"x")


# --- the process: connections -----------------------------------------------------------------

_LONGEST_WHY: Final = 500
#: Bytes that are on their way in one direction of a connection, in a pipe.
PIPE_BYTES: Final = 256 << 10
#: F_SETPIPE_SZ (fcntl(2)), SPLICE_F_MOVE and SPLICE_F_NONBLOCK (splice(2)).
_SET_PIPE_SIZE: Final = 1031
_SPLICE: Final = 1 | 2
#: Pipes that are kept for the next use.
_MOST_PIPES: Final = 32
#: Times that a direction is served until the others have their turn.
_TURNS: Final = 4


class Flow:
    """One direction: what ``source`` sends goes to ``target``, then that it has ended.

    The bytes go through a pipe, which the OS kernel copies nothing for (splice(2)). There is one
    only while something is on its way.
    """

    def __init__(self, source: socket.socket, target: socket.socket, pipes: Pipes) -> None:
        self.source, self.target, self._pipes = source, target, pipes
        #: Bytes that are in the pipe, and that went in and out until now.
        self.held = self.moved = 0
        self._pipe: tuple[int, int] | None = None
        self._has_ended = self.is_done = False

    @property
    def reads(self) -> bool:
        """Whether it waits for what the source sends."""
        return not self.held and not self._has_ended

    def move(self) -> None:
        """Move what can be moved at once. Raises OSError when either side has gone."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(_TURNS):
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
            sent = os.splice(self._pipe[0], out, self.held, flags=_SPLICE)
            self.held -= sent
            self.moved += sent

    def close(self) -> None:
        """Give the pipe back."""
        if self._pipe is not None:
            self._pipes.give_back(self._pipe, is_empty=not self.held)
            self._pipe = None


def joined(near: socket.socket, far: socket.socket, pipes: Pipes) -> tuple[Flow, Flow]:
    """Return both directions of a connection whose sockets are connected."""
    for sock in (near, far):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Flow(near, far, pipes), Flow(far, near, pipes)


def move(flows: Iterable[Flow]) -> bool:
    """Move what can be moved; return whether there is nobody that has gone."""
    try:
        for flow in flows:
            if not flow.is_done:
                flow.move()
    except OSError:  # or there are no pipes
        return False
    return True


class Pipes:
    """Pipes that are empty, for whichever flow needs one."""

    def __init__(self) -> None:
        self._free: list[tuple[int, int]] = []

    def take(self) -> tuple[int, int]:
        """Return a pipe. Raises OSError where there can be none."""
        if self._free:
            return self._free.pop()
        import fcntl  # noqa: PLC0415 - there is no relay where there is no such module

        pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # this user has many: it is smaller then
            fcntl.fcntl(pipe[1], _SET_PIPE_SIZE, PIPE_BYTES)
        return pipe

    def give_back(self, pipe: tuple[int, int], *, is_empty: bool) -> None:
        """Keep a pipe for the next flow, or close it."""
        if is_empty and len(self._free) < _MOST_PIPES:
            self._free.append(pipe)
            return
        for fd in pipe:
            os.close(fd)


C = TypeVar("C")


class Sockets(Generic[C]):
    """The sockets of a server's connections: whose each is, and what is waited for at it."""

    def __init__(self, epoll: select.epoll) -> None:
        self._epoll = epoll
        self._owners: dict[int, C] = {}
        self._waited_for: dict[int, int] = {}
        #: Sockets of connections that have ended. They are closed when all events are served: else
        #: an event of one that had the same number would be taken for a new one's.
        self._forgotten: list[socket.socket] = []

    def __bool__(self) -> bool:
        """Return whether there is any, or anything is waited for."""
        return bool(self._owners or self._waited_for)

    def owner(self, fd: int) -> C | None:
        """Return the connection that a descriptor belongs to, None for none."""
        return self._owners.get(fd)

    def add(self, sock: socket.socket, connection: C, events: int) -> None:
        """Wait for events at a connection's socket."""
        self._owners[sock.fileno()] = connection
        self.wait(sock, events)

    def wait(self, sock: socket.socket, events: int, *, without_hang_up: bool = False) -> None:
        """Wait for events at a socket; for a hang-up, too, unless nothing else is waited for."""
        fd, known = sock.fileno(), self._waited_for.get(sock.fileno())
        if events == 0 and without_hang_up:
            if known is not None:
                self._epoll.unregister(fd)
                del self._waited_for[fd]
            return
        if known is None:
            self._epoll.register(fd, events)
        elif known != events:
            self._epoll.modify(fd, events)
        self._waited_for[fd] = events

    def forget(self, sock: socket.socket, *, reset: bool = False) -> None:
        """Wait for a socket no more, and close it soon; with ``reset`` its peer hears an error."""
        if reset:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.wait(sock, 0, without_hang_up=True)
        self._owners.pop(sock.fileno(), None)
        self._forgotten.append(sock)

    def close_later(self, sock: socket.socket) -> None:
        """Close a socket, at which nothing is waited for, when all events are served."""
        self._forgotten.append(sock)

    def close_forgotten(self) -> None:
        """Close what was forgotten: all events are served."""
        while self._forgotten:
            self._forgotten.pop().close()


@dataclass(eq=False, slots=True)
class Connection:
    """A guest's connection, ``near``, and its way on: ``far``, when that is known."""

    neighbour: Neighbour
    near: socket.socket
    #: Addresses that are yet to be tried, the one that ``far`` is for, and when it, or a guest that
    #: has left, has had its time.
    targets: list[IPAddress] = field(default_factory=list)
    address: IPAddress | None = None
    far: socket.socket | None = None
    give_up_at: float = 0.0
    flows: tuple[Flow, ...] = ()
    #: Whether the guest sends no more: it has closed its socket, or the half of it.
    has_left: bool = False
    #: Bytes that had been moved when it was last looked at.
    moved: int = 0

    def sockets(self) -> list[socket.socket]:
        """Return both sockets, or the only one."""
        return [self.near] if self.far is None else [self.near, self.far]


# --- the process: serving ---------------------------------------------------------------------

READ_SIZE: Final = 1 << 16
#: Connections of one session; further ones wait until one of these has ended.
MAX_CONNECTIONS: Final = 256
#: Connections that are taken in a slot of so many seconds; further ones wait for the next.
MAX_PER_SLOT: Final = 200
SLOT_SECONDS: Final = 0.1
#: Seconds that an address of several, and the last one, has to answer in.
FIRST_SECONDS: Final = 5.0
LAST_SECONDS: Final = 60.0
#: Seconds without a byte that a connection has whose guest sends no more.
LEFT_SECONDS: Final = 60.0
#: Descriptors of one connection, two sockets and two pipes; and those that nobody takes for one.
FILES_EACH: Final = 6
SPARE_FILES: Final = 64
#: Seconds for which Linux keeps the port of a connection that has ended (TIME_WAIT).
PORT_SECONDS: Final = 60.0
#: Ports that Linux gives to who connects (ip(7)), and what it does where nobody says.
_PORT_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL_PORTS: Final = 32_768, 60_999
#: What a socket of the relay's may hold each way. Linux doubles it, and enlarges it no more.
BUFFER_BYTES: Final = 256 << 10
#: A guest whose FIN waits behind bytes that nobody takes is gone some day: that is asked for.
KEEP_ALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
)
#: struct linger: closing resets (socket(7)).
RESET: Final = struct.pack("ii", 1, 0)


def most_per_port_seconds() -> int:
    """Return how many connections a session may make in ``PORT_SECONDS``: a quarter of the ports.

    The user's other programs need some, too.
    """
    first, last = _USUAL_PORTS
    with contextlib.suppress(OSError, ValueError):
        first, last = map(int, _PORT_RANGE.read_text(encoding="ascii").split())
    return max(1, (last - first + 1) // 4)


class Pace:
    """How fast connections are taken: so many in a slot, and ``most`` in ``PORT_SECONDS``."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken, self._slot_ends, self._rests = 0, 0.0, False
        #: When earlier slots ended, and how many were taken in each; how many in all of these.
        self._slots = deque[tuple[float, int]]()
        self._before = 0

    def take(self) -> None:
        """Count one."""
        self._taken += 1

    def rest(self) -> None:
        """Take none until the next slot."""
        self._rests = True

    def allows(self, now: float) -> bool:
        """Whether one more is taken at this time."""
        if now >= self._slot_ends:
            if self._taken:
                self._slots.append((now, self._taken))
                self._before += self._taken
            self._taken, self._slot_ends, self._rests = 0, now + SLOT_SECONDS, False
        while self._slots and now - self._slots[0][0] >= PORT_SECONDS:
            self._before -= self._slots.popleft()[1]
        return not self._rests and self._taken < min(MAX_PER_SLOT, self._most - self._before)

    def next_look(self) -> float:
        """Return when more may be taken, if none is now."""
        if self._slots and self._before >= self._most:
            return self._slots[0][0] + PORT_SECONDS
        return self._slot_ends


class Server:
    """Serves one session's guests. ``control`` is the socket to the host, which sends the list."""

    def __init__(self, control: socket.socket, look_up: LookUp = look_up) -> None:
        self._control = control
        self._names, self._pipes = Names(look_up), Pipes()
        self._allowed = Allowlist(())
        self._splitter = frames.Splitter()
        self._decode: frames.Decoder[ToRelay] = frames.Decoder(ToRelay)
        self._epoll = select.epoll()
        for fd in (control.fileno(), self._names.woken):
            self._epoll.register(fd, select.EPOLLIN)
        #: Descriptors that came before their ``Listener`` was complete.
        self._received: list[int] = []
        self._listeners: dict[int, tuple[socket.socket, Neighbour]] = {}
        self._sockets: Sockets[Connection] = Sockets(self._epoll)
        self._all: set[Connection] = set()
        #: Those that have a time until which: they are connecting, or their guest has left.
        self._timed: set[Connection] = set()
        self._files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        #: How fast connections are taken, and whether any are now.
        self._pace, self._is_taking = Pace(most_per_port_seconds()), True

    def serve(self) -> None:
        """Serve until the host hangs up."""
        while True:
            for fd, events in self._epoll.poll(self._next_look()):
                if fd == self._control.fileno():
                    if not self._read_control():
                        return
                elif fd == self._names.woken:
                    self._go_on_with_found()
                elif fd in self._listeners:
                    self._accept(fd)
                elif (connection := self._sockets.owner(fd)) is not None:
                    if fd == connection.near.fileno() and events & select.EPOLLRDHUP:
                        connection.has_left = True
                    self._serve(connection, events)
            self._look_at_time()
            self._sockets.close_forgotten()

    # --- time ---------------------------------------------------------------------------------

    def _next_look(self) -> float | None:
        """Return the seconds until something is due that no socket tells."""
        due = [each.give_up_at for each in self._timed]
        if not self._is_taking and self._has_room():
            due.append(self._pace.next_look())
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _look_at_time(self) -> None:
        now = time.monotonic()
        is_taking = self._pace.allows(now) and self._has_room()
        if is_taking != self._is_taking:
            self._is_taking = is_taking
            for fd in self._listeners:
                if is_taking:
                    self._epoll.register(fd, select.EPOLLIN)
                else:
                    self._epoll.unregister(fd)
        for connection in [each for each in self._timed if each.give_up_at <= now]:
            if connection.flows:
                self._end(connection, reset=True)
            else:
                self._try_next(connection, errno.ETIMEDOUT)

    def _has_room(self) -> bool:
        files = self._files - SPARE_FILES - len(self._listeners)
        return len(self._all) < min(MAX_CONNECTIONS, max(1, files // FILES_EACH))

    # --- the host -----------------------------------------------------------------------------

    def _read_control(self) -> bool:
        """Handle messages of the host; return whether it is still there."""
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
        self._allowed = Allowlist(entries)
        for fd, (_, neighbour) in list(self._listeners.items()):
            if not self._allowed.has(neighbour):
                self._stop_listening(fd)
        for connection in list(self._all):
            may = partial(self._may, connection)
            connection.targets = list(filter(may, connection.targets))
            there = connection.address
            if not self._allowed.has(connection.neighbour) or not (there is None or may(there)):
                self._end(connection, reset=True)

    def _may(self, connection: Connection, address: IPAddress) -> bool:
        """Whether the list still has what a connection is for be at an address."""
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
        if self._is_taking:
            self._epoll.register(fd, select.EPOLLIN)

    def _stop_listening(self, fd: int) -> None:
        listener, _ = self._listeners.pop(fd)
        if self._is_taking:
            self._epoll.unregister(fd)
        _stop(listener)

    def _report(self, message: msgspec.Struct) -> None:
        with contextlib.suppress(OSError):  # the host has gone: the next read says so
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
            if error.errno == errno.EINVAL:  # the host has shut it down
                self._stop_listening(fd)
            self._pace.rest()  # or there are no descriptors: not to be tried at once
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
            # Who listens at one of both addresses is there by the other, too.
            others = LOOPBACK if neighbour.name else ()
            there = dict.fromkeys((neighbour.address, *others))
            listed = (each for each in there if self._allowed.has(replace(neighbour, address=each)))
            self._begin(connection, listed)
        elif (found := self._names.ask(neighbour.name)) is not None:
            self._go_on(connection, found)

    def _go_on_with_found(self) -> None:
        for found in self._names.found():
            for each in [each for each in self._all if each.neighbour.name == found.name]:
                if each.far is None:
                    self._go_on(each, found)

    def _go_on(self, connection: Connection, found: Found) -> None:
        """Begin to connect to where a name is, as far as that may be reached."""
        name, port, entry = found.name, connection.neighbour.port, connection.neighbour.entry
        good, bad = self._allowed.reachable(found.addresses, port)
        if good:
            self._begin(connection, map(str, good))
            return
        if bad:
            why = f"{entry}: it is at {bad}, which is not a public address; list that, too"
            self._report(Judged(verdict="refused", host=bad, port=port, name=name, why=why))
        else:
            self._report(Failed(why=f"{entry}: {found.why or 'it has no address'}"))
        self._end(connection, reset=True)

    def _begin(self, connection: Connection, addresses: Iterable[str]) -> None:
        connection.targets = [each for each in map(read, addresses) if each is not None]
        self._try_next(connection, errno.EHOSTUNREACH)

    def _try_next(self, connection: Connection, error: int) -> None:
        """Connect to the next of the addresses, after an error of the one before."""
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
        up, down = connection.flows
        if up.is_done and down.is_done:
            self._end(connection)
            return
        for out, back in ((up, down), (down, up)):
            # Nothing behind an urgent byte (tcp(7)) is read until somebody takes that byte.
            wanted = select.EPOLLIN | select.EPOLLPRI if out.reads else 0
            wanted |= select.EPOLLOUT if back.held else 0
            # That a guest has left is to be known also while nothing more is read of it.
            wanted |= select.EPOLLRDHUP if out is up and not connection.has_left else 0
            self._sockets.wait(out.source, wanted, without_hang_up=True)
        moved = up.moved + down.moved
        if connection.has_left and (connection not in self._timed or moved != connection.moved):
            connection.give_up_at = time.monotonic() + LEFT_SECONDS
            self._timed.add(connection)
        connection.moved = moved

    def _go_on_connecting(self, connection: Connection, events: int) -> None:
        """See what has become of a socket that is connecting, or a guest that waits for it."""
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
        """End a connection; with ``reset`` both sides hear that it is broken."""
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
    """Return a socket that connects to this very address, whatever any name means by now.

    Raises OSError.
    """
    family = socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    bound_buffers(sock)
    error = sock.connect_ex((str(address), port))
    if error not in (0, errno.EINPROGRESS):
        sock.close()
        raise OSError(error, os.strerror(error))
    return sock


def bound_buffers(sock: socket.socket) -> None:
    """Have a socket hold little: all programs of the machine share the memory of these."""
    for each in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        sock.setsockopt(socket.SOL_SOCKET, each, BUFFER_BYTES)


def raise_file_limit() -> None:
    """Open as many files as this user may: a connection takes six."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # as it was, then, and fewer connections
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def is_connected(sock: socket.socket) -> bool:
    """Whether a socket has somebody at its other end."""
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
        os._exit(0)  # threads may be in the middle of a look-up
