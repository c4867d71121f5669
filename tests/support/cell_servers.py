"""Cells' servers, as a browser on this machine reaches them: by the addresses in %ports."""

from __future__ import annotations

import http.client
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from support import reading

if TYPE_CHECKING:
    from support.kernels import Kernel

SECONDS = 20.0
#: A cell that serves a text at a port, in a thread.
SERVES = """
import http.server, threading
class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        body = {body!r}.encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer.request_queue_size = 128
server = http.server.ThreadingHTTPServer(({host!r}, {port}), Answers)
threading.Thread(target=server.serve_forever, daemon=True).start()
"""


def serving_cell(port: int, body: str = "a cell's page", host: str = "127.0.0.1") -> str:
    """Return the source of a cell that serves a text at a port."""
    return SERVES.format(port=port, body=body, host=host)


def shown_ports(kernel: Kernel) -> dict[int, tuple[str, bool]]:
    """Return what %ports shows: by port, the address and whether a cell listens."""
    shown = reading.cards(kernel.run("%ports")[1], "ports")
    rows = shown[0]["ports"] if shown else []
    return {row["number"]: (row["url"], row["listens"]) for row in rows}


def socket_address(url: str) -> tuple[str, int]:
    """Return the socket address for a URL: names below localhost are this machine (RFC 6761)."""
    return "127.0.0.1", int(urlsplit(url).port or 80)


def connect(url: str) -> socket.socket:
    """Return a connection to a URL's server."""
    return socket.create_connection(socket_address(url), SECONDS)


def get(url: str, host: str | None = None, path: str = "/") -> tuple[int, str]:
    """Request a URL with ``host`` in the header Host; return the status and the text."""
    asked = http.client.HTTPConnection(*socket_address(url), timeout=SECONDS)
    try:
        asked.request("GET", path, headers={"Host": urlsplit(url).netloc if host is None else host})
        answer = asked.getresponse()
        return answer.status, answer.read().decode()
    finally:
        asked.close()
