"""Listeners around a kernel whose policy lists addresses: some are listed, others are not."""

import json
import socket

import pytest

from support import ports
from support.servers import AUTHORITY, Site, echo

SECONDS = 20.0
MACHINE = socket.gethostname()
ALLOW = "network_access). To allow it: "


class Place:
    """The listeners, listed and not listed. ``names`` are their names in cells."""

    def __init__(self):
        self.site, self.secure, self.other = Site(), Site(tls=True), Site()
        self.echo = echo()
        self.held = _listener()
        self.elsewhere = _listener("127.0.0.2", self.site.port)
        self.strange = ports.aside()
        self.full, self._filling = _full()
        self.datagrams = ports.aside(socket.SOCK_DGRAM)
        self.listed = [
            f"localhost:{self.site.port}",
            f"127.0.0.1:{self.secure.port}",
            f"127.0.0.1:{_port(self.echo)}",
            f"127.0.0.1:{_port(self.held)}",
            f"{MACHINE}:{_port(self.strange)}",
            f"127.0.0.1:{_port(self.full)}",
        ]
        self.names = {
            "SITE": self.site.origin,
            "SECURE": self.secure.origin,
            "OTHER": self.other.origin,
            "ECHO": ("127.0.0.1", _port(self.echo)),
            "HELD": ("127.0.0.1", _port(self.held)),
            "ELSEWHERE": ("127.0.0.2", self.site.port),
            "STRANGE": ("127.0.0.1", _port(self.strange)),
            "DATAGRAMS": ("127.0.0.1", _port(self.datagrams)),
            "FULL": ("127.0.0.1", _port(self.full)),
            "MACHINE": (MACHINE, _port(self.strange)),
            "AUTHORITY": AUTHORITY,
        }

    def untouched(self):
        """Raise if anything connected to a listener that is not listed."""
        for listener in (self.elsewhere, self.strange):
            with pytest.raises(BlockingIOError):
                listener.accept()
        with pytest.raises(BlockingIOError):
            self.datagrams.recv(1)
        assert self.other.asked == []

    def take(self):
        """Return the other end of a connection to HELD."""
        self.held.settimeout(SECONDS)
        peer, _ = self.held.accept()
        peer.settimeout(SECONDS)
        return peer

    def close(self):
        for site in (self.site, self.secure, self.other):
            site.close()
        listeners = (self.echo, self.held, self.elsewhere, self.strange, self.full)
        for sock in (*listeners, self.datagrams, self._filling):
            sock.close()


def _listener(host="127.0.0.1", port=0):
    made = socket.create_server((host, port))
    made.setblocking(False)
    return made


def _port(sock):
    return sock.getsockname()[1]


def _full():
    """Return a listener whose backlog is full, and the connection that fills it.

    The OS kernel drops further SYNs (tcp(7)).
    """
    made = socket.socket()
    made.bind(("127.0.0.1", 0))
    made.listen(0)
    return made, socket.create_connection(made.getsockname())


def policy_with_addresses(world, listed, text=""):
    return world.policy(f'extends = "unsafe"\nnetwork_access = {json.dumps(listed)}\n{text}')
