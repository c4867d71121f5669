"""A network for one session alone, in which the hosts that the policy lists are neighbours.

It is a network namespace with a loopback device and no other, so nothing in it leads outside. The
zygote makes it before its locks: ``enter``, then ``settle``, then ``listen``.

Each listed host has an address in it. A listed name gets one of the loopback device's own
addresses, which a private /etc/hosts maps the name to; a listed address is added to the device. At
each listed port a socket listens before any guest exists. The zygote sends these sockets to the
host, and the host's relay accepts the connections that arrive. So the listener that a connection
arrived at says which entry of the policy the guest means: no address is read from a guest.

If a policy has ports, the zygote also sends the host a socket of this network. By that, a process
of the host enters the network and connects to servers of cells (``host.services.ports``).

In a container the engine makes the network, also without a device, and /etc/hosts. No address can
be added there.

Source: network_namespaces(7), rtnetlink(7), netlink(7), hosts(5).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import struct
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellblock.guest.confine import layer, libc
from cellblock.guest.confine.libc import ConfineError, LockFailed
from cellblock.guest.mounting import MS_BIND, PLACE, by, make_read_only, mount
from cellblock.wire.messages import Neighbour

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: The file in which names are looked up first (nsswitch.conf(5)).
HOSTS: Final = "/etc/hosts"
_OWN_NAMES: Final = ("127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback")
#: Connections that may wait for the relay. Further ones wait in the guest's ``connect``.
BACKLOG: Final = 256

# <linux/sched.h>, <linux/sockios.h>, <linux/if.h>: struct ifreq with a name and flags
CLONE_NEWNET: Final = 0x4000_0000
SIOCGIFFLAGS: Final = 0x8913
SIOCSIFFLAGS: Final = 0x8914
IFF_UP: Final = 1
_IFREQ: Final = struct.Struct("=16sh14x8x")
_LOOPBACK: Final = "lo"
#: Least, first and most bytes of a TCP connection's buffers (tcp(7)). Bounded, because all programs
#: of the machine share the memory of these buffers.
_BUFFERS: Final = {"tcp_rmem": "4096 131072 524288", "tcp_wmem": "4096 16384 524288"}
# <linux/netlink.h>, <linux/rtnetlink.h>, <linux/if_addr.h>: nlmsghdr, ifaddrmsg, rtattr, nlmsgerr
_HEADER: Final = struct.Struct("=IHHII")
_ADDRESS: Final = struct.Struct("=BBBBi")
_ATTRIBUTE: Final = struct.Struct("=HH")
_ERROR: Final = struct.Struct("=i")
RTM_NEWADDR: Final = 20
NLM_F_REQUEST: Final = 1
NLM_F_ACK: Final = 4
IFA_ADDRESS: Final = 1
IFA_LOCAL: Final = 2
IFA_F_NODAD: Final = 2
_LONGEST: Final = 4_096
#: Seconds that new addresses may take to be reached.
_PATIENCE: Final = 2.0
#: An address counts as reachable if it was reached so many times in a row, 2 ms apart.
_TIMES_REACHED: Final = 10
#: Errnos of adding an address, or listening there, if this machine lacks addresses of that kind.
_NOT_HERE: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EINVAL, errno.EACCES)


def enter() -> None:
    """Enter a new network namespace, and switch on its loopback device.

    Raises OSError, and LockFailed if the namespace has any other device.
    """
    libc.unshare(CLONE_NEWNET)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        if devices := [name for _, name in socket.if_nameindex() if name != _LOOPBACK]:
            raise LockFailed(f"there are network devices: {', '.join(devices)}")
        request = _IFREQ.pack(_LOOPBACK.encode(), 0)
        _, flags = _IFREQ.unpack(fcntl.ioctl(sock, SIOCGIFFLAGS, request))
        fcntl.ioctl(sock, SIOCSIFFLAGS, _IFREQ.pack(_LOOPBACK.encode(), flags | IFF_UP))
    for name, sizes in _BUFFERS.items():
        with contextlib.suppress(OSError):  # read-only in a container: the machine's sizes hold
            Path("/proc/sys/net/ipv4", name).write_text(sizes, encoding="ascii")


def settle(neighbours: Sequence[Neighbour], folder: str) -> None:
    """Make the neighbours known by name and address, in the namespaces that were entered.

    Adds listed addresses to the loopback device, and mounts a private /etc/hosts, which is made in
    ``folder``. Raises OSError.
    """
    literals = dict.fromkeys(neighbour.address for neighbour in neighbours if not neighbour.name)
    addresses = [
        address for address in literals if not address.startswith("127.") and address != "::1"
    ]
    _wait_for_routes([address for address in addresses if _add_address(address) and ":" in address])
    fd, path = tempfile.mkstemp(prefix="hosts-", dir=folder)
    try:
        os.write(fd, hosts(neighbours).encode())
        os.fchmod(fd, 0o444)
        target_fd = os.open(os.path.realpath(HOSTS), PLACE)
        mount(by(fd), by(target_fd), "", MS_BIND)
        os.close(target_fd)
        mounted_fd = os.open(os.path.realpath(HOSTS), PLACE)
        make_read_only(mounted_fd)
        os.close(mounted_fd)
    finally:
        os.close(fd)
        os.unlink(path)  # else guests could write to the same file by this name


def hosts(neighbours: Sequence[Neighbour]) -> str:
    """Return the text of /etc/hosts (hosts(5)) for a network with these neighbours."""
    named = dict.fromkeys(
        f"{neighbour.address} {neighbour.name}" for neighbour in neighbours if neighbour.name
    )
    listed = [line for line in named if not line.endswith(" localhost")]
    return "\n".join((*_OWN_NAMES, *listed, ""))


def _add_address(address: str) -> bool:
    """Add one address to the loopback device.

    Return False if the device has the address already, or this machine lacks addresses of that
    kind. Raises OSError. Not done by ioctl (netdevice(7)), which would make the whole network of
    the address's class local.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    packed = socket.inet_pton(family, address)
    attribute = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(packed), IFA_LOCAL) + packed
    attribute += _ATTRIBUTE.pack(_ATTRIBUTE.size + len(packed), IFA_ADDRESS) + packed
    index = socket.if_nametoindex(_LOOPBACK)
    body = _ADDRESS.pack(family, 8 * len(packed), IFA_F_NODAD, 0, index) + attribute
    flags = NLM_F_REQUEST | NLM_F_ACK
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC) as netlink:
        netlink.send(_HEADER.pack(_HEADER.size + len(body), RTM_NEWADDR, flags, 1, 0) + body)
        number = -_ERROR.unpack_from(netlink.recv(_LONGEST), _HEADER.size)[0]
    if number and number not in (errno.EEXIST, *_NOT_HERE):
        raise OSError(number, os.strerror(number), address)
    return not number


def _wait_for_routes(addresses: Sequence[str]) -> None:
    """Wait until new IPv6 addresses can be reached, two seconds at most.

    Linux adds their routes a few milliseconds later, in a worker, and a route may come and go
    meanwhile. Until then a guest's connection would fail with ENETUNREACH.
    """
    deadline = time.monotonic() + _PATIENCE
    reached = 0
    while addresses and reached < _TIMES_REACHED and time.monotonic() < deadline:
        reached = reached + 1 if all(map(_has_route, addresses)) else 0
        time.sleep(0.002)


def _has_route(address: str) -> bool:
    # Connecting a datagram socket sends nothing, but needs a route.
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        return sock.connect_ex((address, 1)) == 0


def listen(neighbours: Sequence[Neighbour]) -> Iterator[tuple[int, int]]:
    """Yield each neighbour's number and the descriptor of a socket that listens at its address.

    Addresses of a kind that this machine lacks, such as IPv6, are left out: no guest can connect to
    them either. Raises OSError.
    """
    for number, neighbour in enumerate(neighbours):
        family = socket.AF_INET6 if ":" in neighbour.address else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as listener:
                if family == socket.AF_INET6:
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listener.bind((neighbour.address, neighbour.port))
                listener.listen(BACKLOG)
                yield number, listener.detach()
        except OSError as error:
            if error.errno not in _NOT_HERE or neighbour.address.startswith("127."):
                raise


# --- for the host: entering the network, and who listens in it -----------------------------------

NETLINK_SOCK_DIAG: Final = 4


def diagnosing_socket() -> int:
    """Return the descriptor of a socket that tells who listens in this network (sock_diag(7)).

    A process that may change the network can also enter it by this socket (``SIOCGSKNS``). Guests
    never have it. Raises OSError.
    """
    kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
    return socket.socket(socket.AF_NETLINK, kind, NETLINK_SOCK_DIAG).detach()


# --- whether it works here ------------------------------------------------------------------------


def try_out(folder: str) -> None:
    """Enter such a network, and check that a neighbour's listener can be reached by its name.

    The process must end afterwards, as it can't leave the network. Raises ConfineError.
    """
    neighbour = Neighbour(name="neighbour.invalid", address="127.80.0.1", port=1)
    try:
        layer.enter_namespaces()
        enter()
        settle([neighbour], folder)
        ((_, fd),) = listen([neighbour])
        with (
            socket.socket(fileno=fd) as listener,
            socket.create_connection((neighbour.name, neighbour.port)) as client,
            listener.accept()[0] as server,
        ):
            client.sendall(b"x")
            if server.recv(1) != b"x":
                raise ConfineError("network", 0, "nothing comes through it")
    except (OSError, LockFailed) as error:
        number = error.errno or 0
        raise ConfineError("network", number, "" if number else str(error)) from error


def run_trial(folder: str) -> None:
    """Run ``try_out`` and print "works" or why it failed. Runs in a process of its own."""
    try:
        try_out(folder)
    except ConfineError as error:
        os.write(1, str(error).encode())
    else:
        os.write(1, b"works")
