"""Servers on loopback for cells to call: HTTP with and without TLS, and a plain echo.

The certificate beside this file was made for these servers only.
"""

import hashlib
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

CERTIFICATE = Path(__file__).with_name("localhost.pem")
#: The certificate that clients must trust, without its key.
AUTHORITY = "-----BEGIN CERT" + CERTIFICATE.read_text().partition("-----BEGIN CERT")[2]
SECONDS = 20.0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = SECONDS

    def do_GET(self):
        self.server.asked.append(self.path)
        way, _, where = self.path[1:].partition("?")
        if way == "to":
            self._answer(302, b"", Location=where)
        else:
            self._answer(200, f"you asked for {way}".encode())

    def do_POST(self):
        self.server.asked.append(self.path)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200, hashlib.sha256(body).hexdigest().encode())

    def _answer(self, status, body, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Site(ThreadingHTTPServer):
    """An HTTP server at 127.0.0.1. ``asked`` has the paths requested, ``origin`` is its address."""

    daemon_threads = True

    def __init__(self, *, tls=False):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked, self.port = [], self.server_port
        self.origin = f"http{'s' * tls}://127.0.0.1:{self.port}"
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(CERTIFICATE)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def handle_error(self, *_):
        """Ignore clients that hang up."""

    def close(self):
        """Stop the server."""
        self.shutdown()
        self.server_close()
        self._thread.join(SECONDS)


def echo():
    """Return a listener whose connections send back all that they receive."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1_024)
    threading.Thread(target=_take, args=(listener,), daemon=True).start()
    return listener


def _take(listener):
    while True:
        try:
            peer, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_say_back, args=(peer,), daemon=True).start()


def _say_back(peer):
    with peer:
        peer.settimeout(SECONDS)
        try:
            while data := peer.recv(65_536):
                peer.sendall(data)
        except OSError:
            return
