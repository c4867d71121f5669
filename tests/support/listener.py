"""``Listener``: listens on loopback for what attacks leak: TCP over IPv4 and IPv6, UDP for STUN."""

import contextlib
import selectors
import socket
import threading
from dataclasses import dataclass

#: Not 127.0.0.1, where clients of ended kernels still try to connect.
ADDRESS = "127.7.7.7"
REPLY = (
    b"HTTP/1.1 204 No Content\r\nAccess-Control-Allow-Origin: *\r\n"
    b"Connection: close\r\nContent-Length: 0\r\n\r\n"
)
READ_SECONDS = 0.5


@dataclass(frozen=True)
class Contact:
    """A connection or datagram: the name of the port, the path that was requested, the headers.

    The path is empty if nothing was requested.
    """

    name: str
    path: str
    headers: str


class Listener:
    """Listens at a port for each name, and records all contacts.

    The answer to requests is 204 No Content, so a page that navigates here stays where it is.
    """

    def __init__(self, names):
        self.contacts = []
        self.ports = {}
        self._selector = selectors.DefaultSelector()
        self._stop, wake = socket.socketpair()
        self._sockets = [wake]
        self._selector.register(wake, selectors.EVENT_READ)
        for name in names:
            for sock in self._listen(name):
                self._selector.register(sock, selectors.EVENT_READ, name)
                self._sockets.append(sock)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _listen(self, name):
        first = socket.create_server((ADDRESS, 0))
        self.ports[name] = port = first.getsockname()[1]
        yield first
        with contextlib.suppress(OSError):
            yield socket.create_server(("::1", port), family=socket.AF_INET6)
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        datagrams.bind((ADDRESS, port))
        yield datagrams

    def _serve(self):
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    return
                self._take(key.fileobj, key.data)

    def _take(self, sock, name):
        if sock.type == socket.SOCK_DGRAM:
            sock.recvfrom(2_048)
            self.contacts.append(Contact(name, "udp", ""))
            return
        peer, _ = sock.accept()
        threading.Thread(target=self._answer, args=(peer, name), daemon=True).start()

    def _answer(self, peer, name):
        with peer:
            peer.settimeout(READ_SECONDS)
            head = b""
            with contextlib.suppress(OSError):
                while b"\r\n\r\n" not in head and len(head) < 16_384:
                    part = peer.recv(4_096)
                    if not part:
                        break
                    head += part
            line, _, headers = head.decode("latin-1").partition("\r\n")
            self.contacts.append(Contact(name, [*line.split(" "), "", ""][1], headers))
            with contextlib.suppress(OSError):
                peer.sendall(REPLY)

    def take(self):
        """Return the contacts since the last call."""
        taken, self.contacts = self.contacts, []
        return taken

    def close(self):
        self._stop.close()
        self._thread.join(5)
        for sock in self._sockets:
            sock.close()
