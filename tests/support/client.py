"""``Client``: a bare Jupyter client with DEALER and SUB sockets, and without threads."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Any, Self

import zmq
from jupyter_client.session import Session

from support.ports import next_port

CHANNELS = ("shell", "iopub", "stdin", "control", "hb")
DEADLINE = 40.0


def free_ports(count: int) -> list[int]:
    """Return ports that were free a moment ago."""
    found: list[int] = []
    with contextlib.ExitStack() as held:  # hold all of them, so that no port is found twice
        while len(found) < count:
            port = next_port()
            probe = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(port)
    return found


def connection(*, encrypted: bool = False) -> dict[str, Any]:
    """Return the content of a connection file with ports that are free now."""
    info: dict[str, Any] = {
        f"{c}_port": p for c, p in zip(CHANNELS, free_ports(len(CHANNELS)), strict=True)
    }
    info |= {
        "ip": "127.0.0.1",
        "key": os.urandom(16).hex(),
        "transport": "tcp",
        "signature_scheme": "hmac-sha256",
    }
    if encrypted:
        public, secret = zmq.curve_keypair()
        info |= {"curve_publickey": public.decode(), "curve_secretkey": secret.decode()}
    return info


class Client:
    """The sockets of one front end. ``log`` has all messages that were received."""

    def __init__(self, info: dict[str, Any]) -> None:
        self.info = info
        self.session = Session(key=info["key"].encode(), signature_scheme=info["signature_scheme"])
        self.ctx = zmq.Context()
        self.log: list[tuple[str, dict]] = []
        self.iopub = self.connect(zmq.SUB, "iopub")
        self.iopub.subscribe(b"")
        self.shell = self.connect(zmq.DEALER, "shell")
        self.control = self.connect(zmq.DEALER, "control")
        # Input requests go to the identity that the execute request came from.
        self.stdin = self.connect(zmq.DEALER, "stdin")

    def connect(self, kind: int, channel: str) -> zmq.Socket:
        """Return a socket that is connected to one of the kernel's."""
        sock = self.ctx.socket(kind)
        sock.linger = 0
        sock.rcvhwm = 0
        sock.set(zmq.RECONNECT_IVL, 2)
        sock.set(zmq.RECONNECT_IVL_MAX, 5)
        if kind == zmq.DEALER:
            sock.identity = self.session.bsession
        if "curve_publickey" in self.info:
            sock.curve_publickey, sock.curve_secretkey = zmq.curve_keypair()
            sock.curve_serverkey = self.info["curve_publickey"].encode()
        sock.connect(f"tcp://127.0.0.1:{self.info[f'{channel}_port']}")
        return sock

    # --- sending ------------------------------------------------------------------------------

    def send(self, msg_type: str, content: dict, channel: str = "shell", **parts: Any) -> str:
        """Send a message and return its id."""
        msg = self.session.send(getattr(self, channel), msg_type, content, **parts)
        return msg["header"]["msg_id"]

    def execute_send(self, code: str, **extra: object) -> str:
        """Send an execute_request; its fields can be overridden."""
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": False,
        } | extra
        return self.send("execute_request", content)

    # --- receiving ----------------------------------------------------------------------------

    def recv(self, channel: str, timeout: float = DEADLINE) -> dict:
        """Return the next message on ``channel``; raises ``TimeoutError``."""
        sock = getattr(self, channel)
        if not sock.poll(timeout * 1000):
            raise TimeoutError(f"nothing on {channel}")
        _, frames = self.session.feed_identities(sock.recv_multipart())
        msg = self.session.deserialize(frames)
        msg["parent_header"] = msg["parent_header"] or {}  # xeus-python says null
        self.log.append((channel, msg))
        return msg

    def reply(self, mid: str, channel: str = "shell", timeout: float = DEADLINE) -> dict:
        """Return the reply to ``mid``; other replies are dropped."""
        while True:
            msg = self.recv(channel, timeout)
            if msg["parent_header"].get("msg_id") == mid:
                return msg

    def until(self, wanted: Any, mid: str | None = None, timeout: float = DEADLINE) -> list[dict]:
        """Return iopub messages up to the first that ``wanted`` accepts, of ``mid`` if given."""
        out = []
        while True:
            msg = self.recv("iopub", timeout)
            if mid is not None and msg["parent_header"].get("msg_id") != mid:
                continue
            out.append(msg)
            if wanted(msg):
                return out

    def until_idle(self, mid: str, timeout: float = DEADLINE) -> list[dict]:
        """Return all iopub messages of ``mid``."""
        return self.until(is_idle, mid, timeout)

    def wait_heard(self) -> Self:
        """Wait until the kernel has greeted this client. Earlier publications are lost."""
        self.until(lambda m: m["msg_type"] == "iopub_welcome")
        return self

    def ask(self, msg_type: str, content: dict, channel: str = "shell", **parts: Any) -> dict:
        """Send a request and return its reply; on shell, wait for its idle too."""
        mid = self.send(msg_type, content, channel, **parts)
        reply = self.reply(mid, channel)
        if channel == "shell":
            self.until_idle(mid)
        return reply

    def run(self, code: str, **extra: object) -> tuple[dict, list[dict]]:
        """Run a cell; return the content of its reply and its iopub messages."""
        mid = self.execute_send(code, **extra)
        reply = self.reply(mid)
        return reply["content"], self.until_idle(mid)

    def disconnect(self) -> None:
        """Close every socket."""
        self.ctx.destroy(linger=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()


def is_idle(msg: dict) -> bool:
    """Return whether ``msg`` ends a request's output."""
    return msg["msg_type"] == "status" and msg["content"]["execution_state"] == "idle"
