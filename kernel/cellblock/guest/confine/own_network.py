"""A network that a session has to itself, in which listed hosts are neighbours.

A network namespace with a loopback device, and no other: nothing in it leads outside. Each listed
host has an address there. A listed name has one of the loopback's own, which a private /etc/hosts
says; a listed address is added to the device. At each listed port a socket listens before any guest
exists. The zygote sends it to the host, and the host's relay takes what comes there. So which entry
a guest means is the listener that its connection came to: nobody reads an address out of a guest.

Where a policy has ports, the zygote also sends the host a socket of this network, by which a
process of the host's enters it, and connects to servers of cells (``host.services.ports``).

In a container the network is the engine's, without a device too, and so is /etc/hosts; no address
can be added there.

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

#: Where names are looked up first (nsswitch.conf(5)).
HOSTS: Final = "/etc/hosts"
_OWN_NAMES: Final = ("127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback")
#: Connections that wait for the relay; more wait at the guest.
BACKLOG: Final = 256

# <linux/sched.h>, <linux/sockios.h>, <linux/if.h>: struct ifreq with a name and flags
CLONE_NEWNET: Final = 0x4000_0000
SIOCGIFFLAGS: Final = 0x8913
SIOCSIFFLAGS: Final = 0x8914
IFF_UP: Final = 1
_IFREQ: Final = struct.Struct("=16sh14x8x")
_LOOPBACK: Final = "lo"
#: Least, first and most bytes that a TCP connection holds each way (tcp(7)): Linux enlarges them no
#: further. All programs of the machine share the memory of these.
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
#: How often in a row, 2 ms apart, they are reached until it counts.
_TIMES_REACHED: Final = 10
#: What adding an address, or listening there, fails with where this machine has no such addresses.
_NOT_HERE: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EINVAL, errno.EACCES)


def enter() -> None:
    """Enter a network namespace in which there is a loopback device, and nothing else.

    Raises OSError, and LockFailed where there is more.
    """
    libc.unshare(CLONE_NEWNET)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        if devices := [name for _, name in socket.if_nameindex() if name != _LOOPBACK]:
            raise LockFailed(f"there are network devices: {', '.join(devices)}")
        asked = _IFREQ.pack(_LOOPBACK.encode(), 0)
        _, flags = _IFREQ.unpack(fcntl.ioctl(asking, SIOCGIFFLAGS, asked))
        fcntl.ioctl(asking, SIOCSIFFLAGS, _IFREQ.pack(_LOOPBACK.encode(), flags | IFF_UP))
    for name, sizes in _BUFFERS.items():
        with contextlib.suppress(OSError):  # a container has them read-only: the machine's hold
            Path("/proc/sys/net/ipv4", name).write_text(sizes, encoding="ascii")


def settle(neighbours: Sequence[Neighbour], folder: str) -> None:
    """Have neighbours be known, by name and by address, in the namespaces that were entered.

    ``folder`` is one that may be written to. Raises OSError.
    """
    literals = dict.fromkeys(each.address for each in neighbours if not each.name)
    added = [each for each in literals if not each.startswith("127.") and each != "::1"]
    _wait_for_ways([each for each in added if _add_address(each) and ":" in each])
    fd, path = tempfile.mkstemp(prefix="hosts-", dir=folder)
    try:
        os.write(fd, hosts(neighbours).encode())
        os.fchmod(fd, 0o444)
        place = os.open(os.path.realpath(HOSTS), PLACE)
        mount(by(fd), by(place), "", MS_BIND)
        os.close(place)
        shown = os.open(os.path.realpath(HOSTS), PLACE)
        make_read_only(shown)
        os.close(shown)
    finally:
        os.close(fd)
        os.unlink(path)  # else guests would have it by another name, which they may write to


def hosts(neighbours: Sequence[Neighbour]) -> str:
    """Return /etc/hosts (hosts(5)) for a network with these neighbours."""
    named = dict.fromkeys(f"{each.address} {each.name}" for each in neighbours if each.name)
    listed = [line for line in named if not line.endswith(" localhost")]
    return "\n".join((*_OWN_NAMES, *listed, ""))


def _add_address(address: str) -> bool:
    """Have the loopback device answer at one more address, and at that alone.

    Return False where this machine has no such addresses, or it is there already. Raises OSError.
    Not by ioctl (netdevice(7)): it has the whole network of the address's class be local.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    packed = socket.inet_pton(family, address)
    attribute = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(packed), IFA_LOCAL) + packed
    attribute += _ATTRIBUTE.pack(_ATTRIBUTE.size + len(packed), IFA_ADDRESS) + packed
    index = socket.if_nametoindex(_LOOPBACK)
    body = _ADDRESS.pack(family, 8 * len(packed), IFA_F_NODAD, 0, index) + attribute
    flags = NLM_F_REQUEST | NLM_F_ACK
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC) as kernel:
        kernel.send(_HEADER.pack(_HEADER.size + len(body), RTM_NEWADDR, flags, 1, 0) + body)
        number = -_ERROR.unpack_from(kernel.recv(_LONGEST), _HEADER.size)[0]
    if number and number not in (errno.EEXIST, *_NOT_HERE):
        raise OSError(number, os.strerror(number), address)
    return not number


def _wait_for_ways(addresses: Sequence[str]) -> None:
    """Wait until new IPv6 addresses can be reached: Linux adds routes later, in a worker.

    That is a matter of milliseconds, in which a route may come and go. Until then nobody connects
    there: ENETUNREACH.
    """
    ends, reached = time.monotonic() + _PATIENCE, 0
    while addresses and reached < _TIMES_REACHED and time.monotonic() < ends:
        reached = reached + 1 if all(map(_has_way, addresses)) else 0
        time.sleep(0.002)


def _has_way(address: str) -> bool:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as asking:
        return asking.connect_ex((address, 1)) == 0


def listen(neighbours: Sequence[Neighbour]) -> Iterator[tuple[int, int]]:
    """Yield the number of each neighbour with the descriptor of a socket that listens for it.

    An address of a kind that this machine lacks, as it may IPv6, is left out: nobody can connect to
    it either. Raises OSError.
    """
    for number, each in enumerate(neighbours):
        family = socket.AF_INET6 if ":" in each.address else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as listener:
                if family == socket.AF_INET6:
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listener.bind((each.address, each.port))
                listener.listen(BACKLOG)
                yield number, listener.detach()
        except OSError as error:
            if error.errno not in _NOT_HERE or each.address.startswith("127."):
                raise


# --- for the host: a way in, and what listens ----------------------------------------------------

NETLINK_SOCK_DIAG: Final = 4


def diagnosing_socket() -> int:
    """Return the descriptor of a socket that tells who listens in this network (sock_diag(7)).

    Whoever may change the network can enter it by that (``SIOCGSKNS``); guests never have it.
    Raises OSError.
    """
    kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
    return socket.socket(socket.AF_NETLINK, kind, NETLINK_SOCK_DIAG).detach()


# --- whether it works here ------------------------------------------------------------------------


def try_out(folder: str) -> None:
    """Enter such a network, and see that a neighbour's listener is reached by its name.

    For a process that ends then. Raises ConfineError.
    """
    tried = Neighbour(name="neighbour.invalid", address="127.80.0.1", port=1)
    try:
        layer.enter_namespaces()
        enter()
        settle([tried], folder)
        ((_, fd),) = listen([tried])
        with (
            socket.socket(fileno=fd) as listener,
            socket.create_connection((tried.name, tried.port)) as one,
            listener.accept()[0] as other,
        ):
            one.sendall(b"x")
            if other.recv(1) != b"x":
                raise ConfineError("network", 0, "nothing comes through it")
    except (OSError, LockFailed) as error:
        number = error.errno or 0
        raise ConfineError("network", number, "" if number else str(error)) from error


def run_trial(folder: str) -> None:
    """Try it out, and print what came of it. Runs in a process of its own."""
    try:
        try_out(folder)
    except ConfineError as error:
        os.write(1, str(error).encode())
    else:
        os.write(1, b"works")
