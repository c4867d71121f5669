"""``Endpoint``: an OpenAI-compatible server on loopback, which the messages control.

If the first word of the last message is the name of one of the handler's methods, such as
``status`` or ``flood``, the server answers in that way. Otherwise it repeats the message.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import select
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: In halves, so that a program which looks for it does not find itself.
KEY = "sk-cellblock" + "test-0123456789abcdef0123456789abcdef"
MODELS = ("small", "large")
#: Bytes of a flood.
_FLOOD = 200 << 20
#: Seconds after which an answer that never ends is given up.
_PATIENCE = 20.0


@dataclass(frozen=True)
class Asked:
    """A request as it was received."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def last(self) -> str:
        """The text of the last message."""
        return self.body["messages"][-1]["content"]


@dataclass
class Endpoint:
    """The server, in a thread, until it is closed. ``asked`` has the requests."""

    asked: list[Asked] = field(default_factory=list)
    #: Set when a client has hung up on an answer that never ends.
    left: threading.Event = field(default_factory=threading.Event)
    #: Messages that begin with ``wait`` are answered when this is set.
    go_on: threading.Event = field(default_factory=threading.Event)
    #: Answers by a text that the message contains.
    answers: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        handler = type("Handler", (_Handler,), {"endpoint": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def close(self) -> None:
        self.go_on.set()
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    endpoint: Endpoint
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.close_connection = True
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.path, headers, json.loads(body))
        self.endpoint.asked.append(asked)
        verb, _, rest = asked.last.partition(" ")
        known = [said for text, said in self.endpoint.answers.items() if text in asked.last]
        text = known[0] if known else rest if verb in _VERBS else asked.last
        with contextlib.suppress(OSError):
            (self._say if known else getattr(self, f"_{verb}", self._say))(text, asked)

    def do_GET(self) -> None:
        """Record a request that followed a redirect."""
        self.endpoint.asked.append(Asked(self.path, {}, {"messages": [{"content": ""}]}))
        self._send(200, b"{}")

    # --- answers ------------------------------------------------------------------------------

    def _say(self, text: str, asked: Asked) -> None:
        usage = {
            "prompt_tokens": sum(len(m["content"].split()) for m in asked.body["messages"]),
            "completion_tokens": len(text.split()),
        }
        self._json(_completion(text, asked, usage=usage))

    def _unmetered(self, text: str, asked: Asked) -> None:
        """Answer without usage."""
        self._json(_completion(text, asked))

    def _usage(self, text: str, asked: Asked) -> None:
        """Answer with this usage."""
        self._json(_completion("metered", asked, usage=json.loads(text)))

    def _cut(self, text: str, asked: Asked) -> None:
        self._json(_completion(text, asked, reason="length"))

    def _reason(self, text: str, asked: Asked) -> None:
        """Answer with a finish reason that has the key in it."""
        self._json(_completion("", asked, reason=text + _key_of(asked)))

    def _wait(self, text: str, asked: Asked) -> None:
        self.endpoint.go_on.wait(_PATIENCE)
        self._say(text or "done", asked)

    def _key(self, text: str, asked: Asked) -> None:
        """Answer with the key in the text."""
        self._say(f"{text} {_key_of(asked)} there", asked)

    def _busy(self, text: str, asked: Asked) -> None:
        """Refuse the first request, and answer the second."""
        if [request.last for request in self.endpoint.asked].count(asked.last) > 1:
            self._say(text, asked)
        else:
            self._send(429, b'{"error": {"message": "busy"}}', {"Retry-After-Ms": "5"})

    def _calls(self, _text: str, asked: Asked) -> None:
        call = {"id": "1", "type": "function", "function": {"name": "rm", "arguments": "{}"}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        body = _completion("", asked, reason="tool_calls")
        body["choices"][0]["message"] = message
        self._json(body)

    # --- answers that no honest endpoint gives ------------------------------------------------

    def _status(self, text: str, asked: Asked) -> None:
        """Refuse with a status and a message, in which ``{key}`` becomes the key."""
        number, _, said = text.partition(" ")
        said = said.replace("{key}", _key_of(asked))
        self._send(int(number), json.dumps({"error": {"message": said}}).encode())

    def _raw(self, text: str, _asked: Asked) -> None:
        self._send(200, text.encode())

    def _redirect(self, text: str, _asked: Asked) -> None:
        status, _, where = text.partition(" ")
        self._send(int(status), b"", {"Location": where})

    def _zipped(self, text: str, asked: Asked) -> None:
        body = json.dumps(_completion("x" * int(text), asked)).encode()
        self._send(200, gzip.compress(body), {"Content-Encoding": "gzip"})

    def _long(self, text: str, asked: Asked) -> None:
        """Answer with a text of so many bytes."""
        self._say("x" * int(text), asked)

    def _flood(self, text: str, _asked: Asked) -> None:
        self._head()
        piece = {"line": b"x" * 65_536, "events": b'data: {"choices": []}\n\n' * 3_000}[text]
        self._never_ends(piece, pause=0.0)

    def _hang(self, _text: str, _asked: Asked) -> None:
        self._never_ends(b"")

    def _drip(self, _text: str, _asked: Asked) -> None:
        self._head()
        self._never_ends(b": still there\n\n")

    def _never_ends(self, piece: bytes, pause: float = 0.05) -> None:
        """Send a piece again and again until the client hangs up."""
        end, sent = time.monotonic() + _PATIENCE, 0
        poll = select.poll()
        poll.register(self.connection, select.POLLRDHUP | select.POLLHUP | select.POLLERR)
        try:
            while time.monotonic() < end and sent < _FLOOD and not poll.poll(pause * 1_000):
                self.wfile.write(piece)
                sent += len(piece)
        finally:
            self.endpoint.left.set()

    # --- sending ------------------------------------------------------------------------------

    def _head(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()

    def _json(self, body: dict[str, Any]) -> None:
        self._send(200, json.dumps(body).encode())

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        own = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        for name, value in (own | {"Connection": "close"} | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


_VERBS = {name.removeprefix("_") for name in vars(_Handler) if name.startswith("_")}


def _key_of(asked: Asked) -> str:
    return asked.headers["authorization"].removeprefix("Bearer ")


def _completion(
    text: str, asked: Asked, *, reason: str = "stop", usage: dict[str, int] | None = None
) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "c-1",
        "object": "chat.completion",
        "created": 1,
        "model": f"{asked.body['model']}-2026",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        **({} if usage is None else {"usage": usage}),
    }
