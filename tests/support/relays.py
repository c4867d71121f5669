"""A relay in a thread, and who listens in a session's network and outside, by hand."""

import errno
import os
import socket
import threading

from cellblock.host.services import relay
from cellblock.wire import frames
from cellblock.wire.messages import Neighbour

SECONDS = 20


def after(go, addresses):
    def found():
        go.wait(SECONDS)
        return addresses

    return found


def close_pipes(server):
    """Close what a server keeps for its next connections: its process would end with it."""
    for pipe in server._pipes._free:
        for fd in pipe:
            os.close(fd)
    server._pipes._free.clear()


class Relay:
    """A server in a thread; ``book`` is where names are, and ``asked`` what was looked up."""

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
        """Have somebody be found at a socket; return a call that connects to it as guests do."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.inside.append(listener)
        neighbour = Neighbour(name=name, address=address, port=port)
        frame = bytes(frames.encode(relay.Listener(neighbour=neighbour)))
        socket.send_fds(self.host, [frame], [listener.fileno()])
        return lambda: connected(listener.getsockname())

    def said(self):
        """Return the next thing that it tells the host, but that somebody came."""
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
    """A guest's end; ``is_broken`` says that the other one broke it off at once."""

    is_broken = False


def connected(address):
    """Return a connection, which may have been broken off already."""
    sock = Guest()
    sock.settimeout(SECONDS)
    error = sock.connect_ex(address)
    if error not in (0, errno.ECONNRESET):
        sock.close()
        raise OSError(error, os.strerror(error))
    sock.is_broken = bool(error)
    return sock


def is_reset(sock):
    """Whether the other end has broken a connection off, maybe at once."""
    try:
        return getattr(sock, "is_broken", False) or sock.recv(1) is None
    except ConnectionResetError:
        return True
