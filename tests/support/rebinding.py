"""A program that tests DNS rebinding: a name gets another address with each lookup.

It must run as root in a network of its own, whose resolv.conf names 127.0.0.1. There it answers all
lookups, has a public address, and prints the result of each fetch as JSON. ``bwrap`` makes such a
network (``support.machines``), so the machine's own is not touched.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import socket
import struct
import threading

import httpx

from cellblock.host.services.operations.grants import OperationError
from cellblock.host.services.operations.http import Fetcher
from cellblock.policy.operations import Http as Table
from support.web import Web, answer

PUBLIC, INSIDE = "93.184.215.14", "127.0.0.1"
URL = "http://rebind.example/"
_SET_ADDRESS = 0x8916
_A = 1
_HEADER = 12


def add_loopback_address(address: str) -> None:
    """Give loopback one more address (netdevice(7), SIOCSIFADDR)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, socket.inet_aton(address))
        fcntl.ioctl(sock, _SET_ADDRESS, request)


class Resolver:
    """A name server (RFC 1035) for all names. ``turn`` sets its answers, whose time to live is 0."""

    def __init__(self) -> None:
        self.addresses, self.asked = [PUBLIC], 0
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.bind(("127.0.0.1", 53))
        threading.Thread(target=self._serve, daemon=True).start()

    def turn(self, *addresses: str) -> None:
        """Answer lookups with these addresses in turn, and further ones with the last."""
        self.addresses, self.asked = list(addresses), 0

    def _serve(self) -> None:
        while True:
            query, peer = self._sock.recvfrom(512)
            self._sock.sendto(self._reply(query), peer)

    def _reply(self, query: bytes) -> bytes:
        end = query.index(b"\0", _HEADER) + 5
        kind = int.from_bytes(query[end - 4 : end - 2])
        found = b""
        if kind == _A:
            address = self.addresses[min(self.asked, len(self.addresses) - 1)]
            self.asked += 1
            found = b"\xc0\x0c\0\x01\0\x01\0\0\0\0\0\x04" + socket.inet_aton(address)
        counts = struct.pack(">HHHH", 1, bool(found), 0, 0)
        return query[:2] + b"\x81\x80" + counts + query[_HEADER:end] + found


def fetched() -> str:
    """Fetch with the host's own operation; return the answer or the error."""
    table = Table(hosts=("http://rebind.example",), timeout=20.0)
    try:
        return asyncio.run(Fetcher(table).http(URL))["content"].decode()
    except OperationError as error:
        return f"{error.kind}: {error.message}"


def main() -> None:
    """Print what each fetch got, how often the name was looked up, and requests inside so far."""
    add_loopback_address(PUBLIC)
    Web(lambda *_: answer(b"public"), address=PUBLIC, port=80)
    inside = Web(lambda *_: answer(b"inside"), address=INSIDE, port=80)
    resolver, told = Resolver(), {}
    resolver.turn(PUBLIC, INSIDE)
    told["first"] = [fetched(), resolver.asked, len(inside.asked)]
    told["again"] = [fetched(), resolver.asked, len(inside.asked)]
    resolver.turn(PUBLIC, INSIDE)
    socket.getaddrinfo("rebind.example", 80)  # a client that looks before it connects
    told["naive"] = [httpx.get(URL, trust_env=False).text, resolver.asked, len(inside.asked)]
    print(json.dumps(told))


if __name__ == "__main__":
    main()
