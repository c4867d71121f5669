"""Ports to the user, the host's end: servers of cells, at addresses on the user's loopback.

A session with ``ports`` has a network of its own (``guest.confine.own_network``). The host listens
on the user's loopback for each port, and hands these sockets to a process of its own
(``port_relay``), which has entered the session's network and connects to its loopback. That process
is in no other network, so nothing that a guest does leads it to the user's loopback. Guests have no
line to it but the connections that it makes.

Each port has a name of its own, made at random: ``http://NAME.localhost:PORT/``. Browsers take all
of ``localhost`` for this machine (RFC 6761). By the name a page has an origin and cookies to
itself; and since nobody can guess it, a request that says another is not the user's.

Who listens in the session's network the OS kernel tells (sock_diag(7)), not a guest.
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


# --- messages between host and process, over a socket of their own --------------------------------


class Enter(Message, frozen=True, kw_only=True):
    """Enter the network of the socket that travels with this frame. First of all."""


class Open(Message, frozen=True, kw_only=True):
    """Continue what comes to sockets to a port of the session's loopback.

    The sockets, ``listeners`` of them, travel with this frame. A request is continued that says it
    is for one of ``hosts``.
    """

    port: int
    listeners: int
    hosts: tuple[str, ...]


class Shut(Message, frozen=True, kw_only=True):
    """End what there is of a port, connections too."""

    port: int


class NotEntered(Message, frozen=True, kw_only=True):
    """The network could not be entered: ``why`` says so to the user."""

    why: str


ToPorts = Enter | Open | Shut
FromPorts = NotEntered


# --- who listens ----------------------------------------------------------------------------------

# <linux/netlink.h>, <linux/sock_diag.h>, <linux/inet_diag.h>: nlmsghdr, inet_diag_req_v2,
# inet_diag_msg; and states of TCP, of which this is a bit
_HEADER: Final = struct.Struct("=IHHII")
_REQUEST: Final = struct.Struct("=BBBxI48x")
_FOUND: Final = struct.Struct("=BBBB2s2s16s")
SOCK_DIAG_BY_FAMILY: Final = 20
NLM_F_REQUEST_DUMP: Final = 0x301
NLMSG_ERROR: Final = 2
NLMSG_DONE: Final = 3
LISTENING: Final = 1 << 10
_READ_SIZE: Final = 1 << 16
#: Reads of one answer: a guest may have thousands of sockets.
_MOST_READS: Final = 64
_ANY_AND_LOOPBACK: Final = {
    socket.AF_INET: tuple(socket.inet_aton(each) for each in ("0.0.0.0", "127.0.0.1")),  # noqa: S104 - not bound to
    socket.AF_INET6: tuple(
        socket.inet_pton(socket.AF_INET6, each)
        for each in ("::", "::1", "::ffff:0.0.0.0", "::ffff:127.0.0.1")
    ),
}


def listening_ports(diagnosing: socket.socket) -> set[int]:
    """Return the TCP ports at which somebody listens on a network's loopback.

    ``diagnosing`` is a socket of that network (``own_network.diagnosing_socket``). Raises OSError.
    """
    return {
        port
        for family, addresses in _ANY_AND_LOOPBACK.items()
        for address, port in _listeners(diagnosing, family)
        if address.startswith(addresses)
    }


def _listeners(diagnosing: socket.socket, family: int) -> Iterator[tuple[bytes, int]]:
    """Yield the address, 16 bytes, and the port of each socket of a family that listens."""
    request = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, LISTENING)
    size = _HEADER.size + len(request)
    diagnosing.send(_HEADER.pack(size, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST_DUMP, 0, 0) + request)
    for _ in range(_MOST_READS):
        data = diagnosing.recv(_READ_SIZE)
        while len(data) >= _HEADER.size:
            size, kind, *_ = _HEADER.unpack_from(data)
            if kind in (NLMSG_DONE, NLMSG_ERROR):
                return
            *_, port, _, address = _FOUND.unpack_from(data, _HEADER.size)
            yield address, int.from_bytes(port, "big")
            data = data[max(size + 3 & ~3, _HEADER.size) :]
    raise OSError(errno.EMSGSIZE, "cells have too many sockets that listen")


# --- addresses on the user's loopback -------------------------------------------------------------

#: Bytes of the random part of a name.
_NAME_BYTES: Final = 8
#: Connections that wait to be taken.
_BACKLOG: Final = 64
#: Numbers that are tried until one is free by both addresses.
_TRIES: Final = 20
#: Where this machine has no IPv6.
_NO_IPV6: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


class PortState(NamedTuple):
    """A port of the session's: the address to open it at, and whether somebody listens there."""

    number: int
    url: str
    listens: bool


@dataclass(eq=False, slots=True)
class OpenPort:
    """A port that the host listens for: ``number`` is the cells', ``there`` the host's."""

    number: int
    there: int
    listeners: list[socket.socket]
    name: str = field(default_factory=lambda: f"{os.urandom(_NAME_BYTES).hex()}.localhost")

    @property
    def host(self) -> str:
        """Return what a browser says that it is for, and nobody else can."""
        return f"{self.name}:{self.there}"

    @property
    def url(self) -> str:
        """Return the address to open."""
        return f"http://{self.host}/"

    def close(self) -> None:
        """Have nobody connect any more, whoever else holds the sockets."""
        for listener in self.listeners:
            with listener, contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)


def open_port(number: int) -> OpenPort:
    """Listen on the user's loopback for a port of cells, by its number where that is free.

    By IPv6 too, where there is that: a browser may try it first, and another user of this machine
    must not have the same number there. Raises OSError.
    """
    for wanted in (number, *[0] * _TRIES):
        try:
            return OpenPort(number, *_listen(wanted))
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _listen(wanted: int) -> tuple[int, list[socket.socket]]:
    listeners, there = list[socket.socket](), wanted
    with contextlib.ExitStack() as opened:
        for family, address in zip((socket.AF_INET, socket.AF_INET6), LOOPBACK, strict=True):
            try:
                listener = opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind((address, there))
            except OSError as error:
                if family == socket.AF_INET6 and error.errno in _NO_IPV6:
                    continue
                raise
            listener.listen(_BACKLOG)
            there = listener.getsockname()[1]
            listeners.append(listener)
        opened.pop_all()
    return there, listeners


# --- a session's ports ----------------------------------------------------------------------------

#: The lowest port that cells listen at: they have no right to those below.
_LEAST: Final = 1_024
#: The first of those that Linux gives to who asks for any (ip_local_port_range).
_EPHEMERAL: Final = 32_768
#: Seconds that the OS kernel has to say who listens.
_PATIENCE: Final = 1.0
#: Processes in a row that may end before anything is served again.
MAX_FAILED_STARTS: Final = 3


class Ports:
    """The ports of a session: those that its policy lists, or any that cells listen at.

    A sandbox and its forks are in one network, and have one of these: the last of them to leave
    closes it. ``tell`` says to the user why nothing can be opened. ``taken`` are the ports at which
    somebody else listens in the session's network: listed hosts.
    """

    def __init__(
        self,
        reactor: Reactor,
        listed: Listed = (),
        hosts: tuple[str, ...] = (),
        taken: frozenset[int] = frozenset(),
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._reactor, self._tell = reactor, tell
        self._listed, self._hosts, self._taken = listed, hosts, taken
        self._users = 1
        self._open: dict[int, OpenPort] = {}
        #: Tells who listens in the network that is served, and stands for it.
        self._network: socket.socket | None = None
        self._worker: Worker[FromPorts] | None = None
        self._failed_starts = 0
        #: Ports that somebody listened at when that was asked last.
        self._known: frozenset[int] = frozenset()

    def join(self) -> Ports:
        """Return it for one session more."""
        self._users += 1
        return self

    def leave(self) -> None:
        """Let go of it; the last session's ports are closed, and all connections end."""
        self._users -= 1
        if not self._users:
            self.narrow_to(())

    @property
    def is_shared(self) -> bool:
        """Whether several sessions have it."""
        return self._users > 1

    def serves(self, network: int | None) -> bool:
        """Whether it serves the network of a zygote's socket."""
        if network is None or self._network is None:
            return network is None and self._network is None
        return os.path.sameopenfile(network, self._network.fileno())

    def serve(self, network: int | None) -> None:
        """Serve a zygote's network, and no other; addresses stay as they are."""
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
        """Serve fewer ports, or for fewer hosts; connections to others end."""
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
        """Return the ports that are open now. Of any, those are opened that somebody listens at."""
        there = self._look()
        return tuple(
            PortState(number, one.url, number in there)
            for number, one in sorted(self._open.items())
        )

    def news(self) -> tuple[PortState, ...]:
        """Return the ports at which somebody has begun to listen since this was asked last.

        One that the policy does not list has no address. Of those that programs are given when they
        ask for any port (ip(7)) nothing is said: they are no servers for people. ``MAX_PORTS`` are
        returned at most, as a cell may listen at thousands.
        """
        now = {
            number: self._open[number].url if number in self._open else ""
            for number in self._look()
            if number in self._open or (self._listed != "any" and _LEAST <= number < _EPHEMERAL)
        }
        known, self._known = self._known, frozenset(now)
        new = sorted(now.keys() - known)[:MAX_PORTS]
        return tuple(PortState(number, now[number], listens=True) for number in new)

    def _look(self) -> set[int]:
        """Return at which ports somebody listens, and open those that may be and are not."""
        if self._network is None:
            return set()
        try:
            found = listening_ports(self._network) - self._taken
        except OSError:
            return set()
        if self._listed == "any":
            wanted = sorted(number for number in found - self._open.keys() if number >= _LEAST)
            for number in wanted:
                if len(self._open) >= MAX_PORTS:
                    gone = next((each for each in self._open if each not in found), None)
                    if gone is None:
                        break
                    self._close_one(gone)
                self._open_one(number)
        return found

    def _open_one(self, number: int) -> None:
        if number in self._open or number in self._taken:
            return
        try:
            one = self._open[number] = open_port(number)
        except OSError as error:
            self._tell(f"port {number} can't be opened for you: {error.strerror}")
            return
        self._give(one)

    def _close_one(self, number: int) -> None:
        self._open.pop(number).close()
        if self._worker is not None:
            self._worker.send(Shut(port=number))

    def _give(self, one: OpenPort) -> None:
        """Have the process take what comes to a port's sockets."""
        if self._worker is None:
            return
        hosts = (one.host, *self._hosts)
        message = Open(port=one.number, listeners=len(one.listeners), hosts=hosts)
        with contextlib.suppress(OSError):  # it has gone, and we shall hear that
            self._worker.send_with(message, [each.fileno() for each in one.listeners])

    def _begin(self) -> None:
        """Have a process enter the network, and serve what is open."""
        if self._network is None:
            return
        try:
            module = "cellblock.host.services.port_relay"
            self._worker = Worker(self._reactor, module, FromPorts, self._on_message, self._on_lost)
            self._worker.send_with(Enter(), [self._network.fileno()])
        except OSError as error:
            self._give_up(str(error.strerror))
            return
        for one in self._open.values():
            self._give(one)

    def _on_message(self, message: FromPorts) -> None:
        self._give_up(message.why)

    def _on_lost(self, why: str) -> None:
        self._worker = None
        self._failed_starts += 1
        if self._failed_starts < MAX_FAILED_STARTS:
            self._begin()
        else:
            self._give_up(why)

    def _give_up(self, why: str) -> None:
        """Close everything: an address that nobody serves is nobody's to have."""
        self._leave_network()
        self._close_all()
        self._tell(f"ports can't be opened for you: {why}")

    def _leave_network(self) -> None:
        """End the process and all connections; a network that comes has the same addresses."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
        network, self._network = self._network, None
        if network is not None:
            network.close()

    def _close_all(self) -> None:
        while self._open:
            self._open.popitem()[1].close()
