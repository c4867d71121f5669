"""Ports, the host's end: opens servers of cells at addresses on the user's loopback.

A session with ``ports`` has a network of its own (``guest.confine.own_network``). For each port
the host listens on the user's loopback, and hands these sockets to a worker process
(``port_relay``) that has entered the session's network and connects to its loopback::

    browser --> user's loopback     session's loopback <-- server in a cell
                      |                      ^
                  host listens          worker connects
                      +---- sockets -->------+

The worker is in no other network, so no guest can lead it to the user's loopback. Guests can reach
it only by the connections that it makes.

Each port has a random name: ``http://NAME.localhost:PORT/``. Browsers resolve all names below
``localhost`` to this machine (RFC 6761). The name gives a page an origin and cookies of its own;
and since nobody can guess it, a request with another name does not come from the user.

The OS kernel says which ports cells listen at (sock_diag(7)), not a guest.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from cellblock.host.guests.worker_process import Worker
from cellblock.policy.network import LOOPBACK
from cellblock.policy.vocabulary import MAX_PORTS
from cellblock.wire.messages import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cellblock.host.reactor import Reactor

    Listed = tuple[int, ...] | Literal["any"]


# --- messages between host and worker, over a socket of their own ---------------------------------


class Enter(Message, frozen=True, kw_only=True):
    """The first message: enter the network of the socket that travels with this frame."""


class Open(Message, frozen=True, kw_only=True):
    """Forward connections from some listening sockets to a port of the session's loopback.

    The sockets travel with this frame; ``listeners`` is their number. Only requests whose
    ``Host`` is one of ``hosts`` are forwarded.
    """

    port: int
    listeners: int
    hosts: tuple[str, ...]


class Shut(Message, frozen=True, kw_only=True):
    """Stop serving a port, and end its connections."""

    port: int


class NotEntered(Message, frozen=True, kw_only=True):
    """The worker could not enter the network. ``why`` is a text for the user."""

    why: str


ToPorts = Enter | Open | Shut
FromPorts = NotEntered


# --- who listens ----------------------------------------------------------------------------------

# <linux/netlink.h>, <linux/sock_diag.h>, <linux/inet_diag.h>: struct nlmsghdr, inet_diag_req_v2,
# inet_diag_msg; LISTENING is a bit in the set of TCP states to report.
_HEADER: Final = struct.Struct("=IHHII")
_REQUEST: Final = struct.Struct("=BBBxI48x")
_ENTRY: Final = struct.Struct("=BBBB2s2s16s")
SOCK_DIAG_BY_FAMILY: Final = 20
NLM_F_REQUEST_DUMP: Final = 0x301
NLMSG_ERROR: Final = 2
NLMSG_DONE: Final = 3
LISTENING: Final = 1 << 10
_READ_SIZE: Final = 1 << 16
#: Reads of one answer: a bound, since a guest may have thousands of sockets.
_MOST_READS: Final = 64
_ANY_AND_LOOPBACK: Final = {
    socket.AF_INET: tuple(socket.inet_aton(each) for each in ("0.0.0.0", "127.0.0.1")),  # noqa: S104 - not bound to
    socket.AF_INET6: tuple(
        socket.inet_pton(socket.AF_INET6, each)
        for each in ("::", "::1", "::ffff:0.0.0.0", "::ffff:127.0.0.1")
    ),
}


def listening_ports(diagnosing: socket.socket) -> set[int]:
    """Return the TCP ports of a network's loopback that have a listener.

    ``diagnosing`` is a netlink socket in that network (``own_network.diagnosing_socket``). Raises
    OSError.
    """
    return {
        port
        for family, addresses in _ANY_AND_LOOPBACK.items()
        for address, port in _listeners(diagnosing, family)
        if address.startswith(addresses)
    }


def _listeners(diagnosing: socket.socket, family: int) -> Iterator[tuple[bytes, int]]:
    """Yield the address, in 16 bytes, and the port of each listening socket of a family."""
    request = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, LISTENING)
    size = _HEADER.size + len(request)
    diagnosing.send(_HEADER.pack(size, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST_DUMP, 0, 0) + request)
    for _ in range(_MOST_READS):
        data = diagnosing.recv(_READ_SIZE)
        while len(data) >= _HEADER.size:
            size, kind, *_ = _HEADER.unpack_from(data)
            if kind in (NLMSG_DONE, NLMSG_ERROR):
                return
            *_, port, _, address = _ENTRY.unpack_from(data, _HEADER.size)
            yield address, int.from_bytes(port, "big")
            data = data[max(size + 3 & ~3, _HEADER.size) :]
    raise OSError(errno.EMSGSIZE, "cells have too many sockets that listen")


# --- addresses on the user's loopback -------------------------------------------------------------

#: Bytes of the random part of a name.
_NAME_BYTES: Final = 8
#: Connections that wait to be accepted.
_BACKLOG: Final = 64
#: Port numbers that are tried until one is free for IPv4 and IPv6.
_TRIES: Final = 20
#: Errors of a machine without IPv6.
_NO_IPV6: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


class PortState(NamedTuple):
    """A port of the session: the address to open it at, and whether a cell listens there."""

    number: int
    url: str
    listens: bool


@dataclass(eq=False, slots=True)
class OpenPort:
    """A port that the host listens for: ``number`` is the cells' port, ``there`` the host's."""

    number: int
    there: int
    listeners: list[socket.socket]
    name: str = field(default_factory=lambda: f"{os.urandom(_NAME_BYTES).hex()}.localhost")

    @property
    def host(self) -> str:
        """Return the ``Host`` of the user's requests, which nobody else can guess."""
        return f"{self.name}:{self.there}"

    @property
    def url(self) -> str:
        """Return the address to open."""
        return f"http://{self.host}/"

    def close(self) -> None:
        """Stop listening, also for the worker that holds the same sockets."""
        for listener in self.listeners:
            with listener, contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)


def open_port(number: int) -> OpenPort:
    """Listen on the user's loopback for a port of cells, with the same number if that is free.

    Listen by IPv6, too, if the machine has it: a browser may try that first, and no other user of
    this machine may get the same number there. Raises OSError.
    """
    for requested in (number, *[0] * _TRIES):  # for 0, the OS kernel chooses
        try:
            return OpenPort(number, *_listen(requested))
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _listen(requested: int) -> tuple[int, list[socket.socket]]:
    """Listen at a port of the loopback, any for 0; return its number and a socket per family."""
    listeners = list[socket.socket]()
    port = requested
    with contextlib.ExitStack() as opened:
        for family, address in zip((socket.AF_INET, socket.AF_INET6), LOOPBACK, strict=True):
            try:
                listener = opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind((address, port))
            except OSError as error:
                if family == socket.AF_INET6 and error.errno in _NO_IPV6:
                    continue
                raise
            listener.listen(_BACKLOG)
            port = listener.getsockname()[1]
            listeners.append(listener)
        opened.pop_all()
    return port, listeners


# --- a session's ports ----------------------------------------------------------------------------

#: The lowest port that cells can listen at: those below need a capability.
_LEAST_PORT: Final = 1_024
#: The first port that Linux gives to programs that ask for any (ip_local_port_range).
_FIRST_EPHEMERAL_PORT: Final = 32_768
#: Seconds that the OS kernel has to say which ports have listeners.
_PATIENCE: Final = 1.0
#: Workers in a row that may be lost before the ports are given up.
MAX_FAILED_STARTS: Final = 3


class Ports:
    """The ports of a session: those that its policy lists, or any that cells listen at.

    A sandbox and its forks are in one network and share a Ports; the last of them to leave closes
    it. ``hosts`` are further values of ``Host`` that are served. ``taken`` are ports of the
    session's network at which its listed hosts are, and no cell can listen. ``tell`` shows the
    user why a port can't be opened.
    """

    def __init__(
        self,
        reactor: Reactor,
        listed: Listed = (),
        hosts: tuple[str, ...] = (),
        taken: frozenset[int] = frozenset(),
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._reactor = reactor
        self._tell = tell
        self._listed = listed
        self._hosts = hosts
        self._taken = taken
        self._users = 1
        self._open: dict[int, OpenPort] = {}
        #: A netlink socket in the network that is served: it says which ports have listeners, and
        #: the worker enters its network.
        self._network: socket.socket | None = None
        self._worker: Worker[FromPorts] | None = None
        self._failed_starts = 0
        #: The ports that had listeners at the last call of news().
        self._known: frozenset[int] = frozenset()

    def join(self) -> Ports:
        """Count one more session, and return self."""
        self._users += 1
        return self

    def leave(self) -> None:
        """Count one session less. The last one closes all ports, and ends all connections."""
        self._users -= 1
        if not self._users:
            self.narrow_to(())

    @property
    def is_shared(self) -> bool:
        """Whether several sessions share these ports."""
        return self._users > 1

    def serves(self, network: int | None) -> bool:
        """Return whether the network of this socket, a zygote's, is the one that is served."""
        if network is None or self._network is None:
            return network is None and self._network is None
        return os.path.sameopenfile(network, self._network.fileno())

    def serve(self, network: int | None) -> None:
        """Serve the network of the zygote that sent this socket, instead of the network before.

        Serve none if ``network`` is None. The addresses of open ports stay the same.
        """
        if not self._listed or self.serves(network):
            return
        self._leave_network()
        self._failed_starts, self._known = 0, frozenset()
        if network is None:
            return
        self._network = socket.socket(fileno=os.dup(network))
        self._network.settimeout(_PATIENCE)
        self._begin()
        if self._listed != "any":
            for number in self._listed:
                self._open_one(number)

    def narrow_to(self, listed: Listed, hosts: tuple[str, ...] = ()) -> None:
        """Serve fewer ports, or for fewer hosts. Connections to others end."""
        if (listed, hosts) == (self._listed, self._hosts):
            return
        for number in list(self._open):
            if hosts != self._hosts or not (listed == "any" or number in listed):
                self._close_one(number)
        self._listed, self._hosts = listed, hosts
        if not listed:
            self._leave_network()
            self._close_all()
        elif listed != "any" and self._network is not None:
            for number in listed:
                self._open_one(number)

    def state(self) -> tuple[PortState, ...]:
        """Return the ports that are open now, after opening new ones if the policy allows any."""
        listening = self._refresh()
        return tuple(
            PortState(number, port.url, number in listening)
            for number, port in sorted(self._open.items())
        )

    def news(self) -> tuple[PortState, ...]:
        """Return the ports at which cells have begun to listen since the last call.

        A port that the policy does not list has no address. Ephemeral ports, which programs get if
        they ask for any (ip(7)), are left out unless they are open: they are not servers for
        people. A cell may listen at thousands, so at most ``MAX_PORTS`` are returned, those with an
        address first.
        """
        urls_by_port = {
            number: self._open[number].url if number in self._open else ""
            for number in self._refresh()
            if number in self._open
            or (self._listed != "any" and _LEAST_PORT <= number < _FIRST_EPHEMERAL_PORT)
        }
        known_before, self._known = self._known, frozenset(urls_by_port)
        new = sorted(
            urls_by_port.keys() - known_before,
            key=lambda number: (not urls_by_port[number], number),
        )[:MAX_PORTS]
        return tuple(PortState(number, urls_by_port[number], listens=True) for number in new)

    def _refresh(self) -> set[int]:
        """Return the ports that cells listen at. If the policy allows any, open new ones.

        Beyond ``MAX_PORTS``, a new port takes the place of one that nothing listens at any more.
        """
        if self._network is None:
            return set()
        try:
            listening = listening_ports(self._network) - self._taken
        except OSError:
            return set()
        if self._listed == "any":
            new = sorted(
                number for number in listening - self._open.keys() if number >= _LEAST_PORT
            )
            for number in new:
                if len(self._open) >= MAX_PORTS:
                    unused = next((port for port in self._open if port not in listening), None)
                    if unused is None:
                        break
                    self._close_one(unused)
                self._open_one(number)
        return listening

    def _open_one(self, number: int) -> None:
        if number in self._open or number in self._taken:
            return
        try:
            port = self._open[number] = open_port(number)
        except OSError as error:
            self._tell(f"port {number} can't be opened for you: {error.strerror}")
            return
        self._give_to_worker(port)

    def _close_one(self, number: int) -> None:
        self._open.pop(number).close()
        if self._worker is not None:
            self._worker.send(Shut(port=number))

    def _give_to_worker(self, port: OpenPort) -> None:
        """Give a port's sockets to the worker, which accepts connections from then on."""
        if self._worker is None:
            return
        hosts = (port.host, *self._hosts)
        message = Open(port=port.number, listeners=len(port.listeners), hosts=hosts)
        with contextlib.suppress(OSError):  # the worker has gone: _on_lost comes next
            self._worker.send_with(message, [each.fileno() for each in port.listeners])

    def _begin(self) -> None:
        """Start a worker that enters the network and serves the open ports."""
        if self._network is None:
            return
        try:
            module = "cellblock.host.services.port_relay"
            self._worker = Worker(self._reactor, module, FromPorts, self._on_message, self._on_lost)
            self._worker.send_with(Enter(), [self._network.fileno()])
        except OSError as error:
            self._give_up(str(error.strerror))
            return
        for port in self._open.values():
            self._give_to_worker(port)

    def _on_message(self, message: FromPorts) -> None:
        self._give_up(message.why)

    def _on_lost(self, why: str) -> None:
        """Replace a worker that has ended, up to a number of times."""
        self._worker = None
        self._failed_starts += 1
        if self._failed_starts < MAX_FAILED_STARTS:
            self._begin()
        else:
            self._give_up(why)

    def _give_up(self, why: str) -> None:
        """Close all ports, so that no address stays that nobody serves, and tell the user why."""
        self._leave_network()
        self._close_all()
        self._tell(f"ports can't be opened for you: {why}")

    def _leave_network(self) -> None:
        """End the worker and all connections. Open ports stay, for the network that comes next."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
        network, self._network = self._network, None
        if network is not None:
            network.close()

    def _close_all(self) -> None:
        while self._open:
            self._open.popitem()[1].close()
