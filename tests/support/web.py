"""``Web``: a small web server on loopback whose answers the test gives."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: A certificate for service.test with its key, made for these servers only.
PEM = Path(__file__).with_name("service_test.pem")
#: A certificate for localhost with its key.
LOCALHOST = Path(__file__).with_name("localhost.pem")
READ_SECONDS = 10.0


def answer(body: bytes = b"", status: str = "200 OK", **headers: str) -> bytes:
    """Return a whole answer, after which the connection ends; ``_`` in a header's name is ``-``."""
    # Without this header a client that keeps connections may send a request on one that ends.
    fields = {"content-length": str(len(body)), "connection": "close"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


class Web:
    """A server that answers each connection with ``say(path, head)``: an answer, or its pieces.

    ``asked`` has the requests in their order.
    """

    def __init__(
        self,
        say: Callable[[str, str], bytes | Iterator[bytes]],
        address: str = "127.0.0.1",
        port: int = 0,
        *,
        tls: bool = False,
        pem: Path = PEM,
    ) -> None:
        self._say, self.asked = say, []
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._sock = socket.create_server((address, port), family=family)
        self.port = self._sock.getsockname()[1]
        host = f"[{address}]" if ":" in address else address
        self.origin = f"{'https' if tls else 'http'}://{host}:{self.port}"
        self._context = None
        if tls:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(pem)
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._sock.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._answer, args=(peer,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _answer(self, peer: socket.socket) -> None:
        peer.settimeout(READ_SECONDS)
        with contextlib.suppress(OSError), peer:
            sock = (
                peer if self._context is None else self._context.wrap_socket(peer, server_side=True)
            )
            with sock:
                head = self._head(sock)
                if not head:
                    return
                said = self._say(head.split(" ")[1], head)
                for piece in [said] if isinstance(said, bytes) else said:
                    sock.sendall(piece)
                    if self._ending.is_set():
                        return

    def _head(self, sock: socket.socket) -> str:
        data = b""
        while b"\r\n\r\n" not in data and len(data) < 1 << 20:
            part = sock.recv(1 << 16)
            if not part:
                return ""
            data += part
        head, _, body = data.partition(b"\r\n\r\n")
        text = head.decode("latin-1")
        wanted = [ln for ln in text.lower().splitlines() if ln.startswith("content-length:")]
        length = int(wanted[0].partition(":")[2]) if wanted else 0
        while len(body) < length and (part := sock.recv(1 << 16)):
            body += part
        self.asked.append(text + "\r\n\r\n" + body.decode("latin-1"))
        return text

    def wait(self, seconds: float) -> bool:
        """Wait so many seconds, or until the server is closed; for slow answers."""
        return self._ending.wait(seconds)

    def close(self) -> None:
        """Close the server and all connections."""
        self._ending.set()
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
        for thread in self._threads:
            thread.join(5)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
