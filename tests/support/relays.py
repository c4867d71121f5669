"""``Relay``: a relay's server in a thread, driven by the test in place of host and guests."""

import errno
import os
import socket
import threading

from cellblock.host.services import relay
from cellblock.wire import frames
from cellblock.wire.messages import Neighbour

SECONDS = 20


def waiting_for(go, addresses):
    def found():
        go.wait(SECONDS)
        return addresses

    return found


def close_pipes(server):
    """Close the pipes that a server keeps for later connections, which normally end with it."""
    for pipe in server._pipes._free:
        for fd in pipe:
            os.close(fd)
    server._pipes._free.clear()


class Relay:
    """A relay in a thread. ``book`` has the addresses of names, ``asked`` the names looked up."""

    def __init__(self, *entries):
        self.book, self.asked, self.inside = {}, [], []
        self.host, theirs = socket.socketpair()
        self.host.settimeout(SECONDS)
        self.splitter, self.heard = frames.Splitter(), []
        self.narrow_to(*entries)
        self.server = relay.Server(theirs, self.look_up)
        self.thread = threading.Thread(target=self.server.serve, daemon=True)
        self.thread.start()

    def narrow_to(self, *entries):
        self.host.sendall(frames.encode(relay.Entries(entries=entries)))

    def look_up(self, name):
        self.asked.append(name)
        found = self.book[name]
        return found() if callable(found) else found

    def neighbour(self, port, *, name="", address="127.0.0.1"):
        """Hand the relay a listener for a neighbour; return a function that connects as guests do."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.inside.append(listener)
        neighbour = Neighbour(name=name, address=address, port=port)
        frame = bytes(frames.encode(relay.Listener(neighbour=neighbour)))
        socket.send_fds(self.host, [frame], [listener.fileno()])
        return lambda: connected(listener.getsockname())

    def said(self):
        """Return the relay's next message to the host, without those that a connection came."""
        while isinstance(found := self.said_of_all(), relay.Came):
            pass
        return found

    def said_of_all(self):
        decode = frames.Decoder(relay.FromRelay)
        while not self.heard:
            self.heard += map(decode, self.splitter.feed(self.host.recv(1 << 16)))
        return self.heard.pop(0)

    def close(self):
        self.host.close()
        self.thread.join(SECONDS)
        assert not self.thread.is_alive()
        for listener in self.inside:
            listener.close()
        close_pipes(self.server)


class Guest(socket.socket):
    """A guest's end of a connection; ``is_broken``: the other end broke it off at once."""

    is_broken = False


def connected(address):
    """Return a connection as a guest makes it, which may have been broken off already."""
    sock = Guest()
    sock.settimeout(SECONDS)
    error = sock.connect_ex(address)
    if error not in (0, errno.ECONNRESET):
        sock.close()
        raise OSError(error, os.strerror(error))
    sock.is_broken = bool(error)
    return sock


def is_reset(sock):
    """Return whether the other end has broken a connection off."""
    try:
        return getattr(sock, "is_broken", False) or sock.recv(1) is None
    except ConnectionResetError:
        return True
