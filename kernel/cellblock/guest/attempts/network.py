"""Attempts on the network: to reach the host's own listeners by every way that there is."""

from __future__ import annotations

import _socket
import contextlib
import ctypes
import errno
import os
import socket
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cellblock.guest.attempts.place import Place

MSG_FASTOPEN: Final = 0x20000000
IPPROTO_MPTCP: Final = 262
#: Seconds that a call to the host's own listeners may take.
_PATIENCE: Final = 2.0


@contextlib.contextmanager
def _made(family: int, kind: int, protocol: int = 0) -> Iterator[_socket.socket]:
    """Make a socket as the OS kernel has it, and not as Python's is mended (``guest.sockets``)."""
    with contextlib.closing(_socket.socket(family, kind, protocol)) as made:
        made.settimeout(_PATIENCE)
        yield made


def tcp(w: Place, protocol: int = 0, port: str = "tcp") -> None:
    """Connect to the host's own listener."""
    with _made(socket.AF_INET, socket.SOCK_STREAM, protocol) as sock:
        sock.connect(("127.0.0.1", w.ports[port]))


def fast_open(w: Place) -> None:
    """Connect as TCP Fast Open does: by sending."""
    with _made(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.settimeout(None)  # it would not wait for the answer
        sock.sendto(b"x", MSG_FASTOPEN, ("127.0.0.1", w.ports["tcp_fast_open"]))


def udp(w: Place) -> None:
    """Send a datagram."""
    with _made(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x", ("127.0.0.1", w.ports["udp"]))


def unix(w: Place, name: str) -> None:
    """Connect to a Unix socket, by its path or in the abstract namespace."""
    with _made(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.connect(w.sockets[name])


def netlink(_w: Place) -> None:
    """Make a netlink socket."""
    with _made(socket.AF_NETLINK, socket.SOCK_RAW):
        pass


def listen(_w: Place) -> None:
    """Listen for connections."""
    with _made(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.listen()


def called(w: Place, name: str, host: str = "127.0.0.1") -> socket.socket:
    """Connect as cells do, by way of the relay where there is one."""
    return socket.create_connection((host, w.ports[name]), _PATIENCE)


def call_listed(w: Place) -> None:
    """Connect to an address that is listed, and send a byte."""
    with called(w, "listed") as sock:
        sock.sendall(b"x")


def turn(w: Place) -> None:
    """Take a connection that was given, undo it, and connect again to somebody else."""
    connect = ctypes.CDLL(None, use_errno=True).connect
    nowhere = struct.pack("=H14x", socket.AF_UNSPEC)
    port = w.ports["turn_connection"]
    there = struct.pack("=H", socket.AF_INET) + struct.pack("!H4B8x", port, 127, 0, 0, 1)
    with called(w, "listed") as sock:
        for address in (nowhere, there):
            failed = connect(sock.fileno(), address, len(address))
            if failed and (number := ctypes.get_errno()) != errno.EINPROGRESS:
                raise OSError(number, os.strerror(number))


def pair(_w: Place) -> None:
    """Send a byte through a pair of sockets."""
    one, other = socket.socketpair()
    with one, other:
        one.sendall(b"x")
        other.recv(1)
