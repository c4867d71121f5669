"""A relay in a thread, and guests' ends of it by hand."""

import os
import select
import socket
import threading

from cellblock.host.services import relay
from cellblock.wire import frames
from cellblock.wire import relay as protocol

SECONDS = 20


class Guest:
    """A guest's end, by hand."""

    def __init__(self, sock):
        self.sock = sock
        sock.settimeout(SECONDS)

    def tell(self, request):
        self.sock.send(protocol.encode(request))

    def hear(self):
        packet, fds, *_ = socket.recv_fds(self.sock, protocol.MOST, 4)
        return (protocol.answer(packet) if packet else None), fds

    def connect(self, port, host="127.0.0.1"):
        nonce = os.urandom(8)
        self.tell(protocol.Connect(nonce=nonce, address=host, port=port))
        answer, fds = self.hear()
        assert answer.nonce == nonce
        return answer, [socket.socket(fileno=fd) for fd in fds]

    def resolve(self, name):
        self.tell(protocol.Resolve(nonce=os.urandom(8), name=name))
        answer, fds = self.hear()
        return answer if answer.errno else read(fds[0])

    def is_heard(self):
        poll = select.poll()
        poll.register(self.sock, 0)
        return not poll.poll(0)


def read(pipe):
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    assert poll.poll(SECONDS * 1_000)
    with os.fdopen(pipe, "rb") as file:
        return protocol.found(file.read())


def after(go, addresses):
    def found():
        go.wait(SECONDS)
        return addresses

    return found


def flood(sock, packet):
    while True:
        sock.send(packet)


class Relay:
    """A server in a thread; ``book`` is where names are, and ``asked`` what was looked up."""

    def __init__(self, *entries):
        self.book, self.asked = {}, []
        self.host, theirs = socket.socketpair()
        self.host.settimeout(SECONDS)
        self.host.sendall(frames.encode(relay.Begin(entries=entries)))
        self.server = relay.Server(theirs, self.look_up)
        self.thread = threading.Thread(target=self.server.serve, daemon=True)
        self.thread.start()
        self.splitter = frames.Splitter()
        self.heard, self.drained = [], None

    def look_up(self, name):
        self.asked.append(name)
        found = self.book[name]
        return found() if callable(found) else found

    def guest(self, number=1):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            admit = frames.encode(relay.Admit(number=number))
            socket.send_fds(self.host, [bytes(admit)], [theirs.fileno()])
        return Guest(ours)

    def said(self):
        """Return the next thing that it tells the host."""
        decode = frames.Decoder(relay.FromRelay)
        while not self.heard:
            self.heard += map(decode, self.splitter.feed(self.host.recv(1 << 16)))
        return self.heard.pop(0)

    def drain(self):
        """Have what it tells the host be heard, and forgotten, from now on."""

        def hear():
            while self.host.fileno() >= 0 and self.host.recv(1 << 16):
                continue

        self.host.settimeout(None)
        self.drained = threading.Thread(target=hear, daemon=True)
        self.drained.start()

    def close(self):
        if self.drained is not None:
            self.host.shutdown(socket.SHUT_RDWR)
            self.drained.join(SECONDS)
        self.host.close()
        self.thread.join(SECONDS)
        assert not self.thread.is_alive()
