"""A connection file, and the five sockets it describes."""

from __future__ import annotations

import hmac
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import zmq

from cellblock.errors import StartError

#: Kinds as in "Messaging in Jupyter", introduction; iopub is XPUB so that subscribers are greeted.
KINDS = {
    "shell": zmq.ROUTER,
    "control": zmq.ROUTER,
    "stdin": zmq.ROUTER,
    "iopub": zmq.XPUB,
    "hb": zmq.ROUTER,
}
_LINGER_MS = 1_000
#: Milliseconds for which a subscriber may take nothing of what is sent before the OS kernel cuts it
#: off (TCP_USER_TIMEOUT, tcp(7)), and messages that may wait for one where it does not (ipc).
_STALLED_MS, _STALLED_MESSAGES = 120_000, 100_000
#: Bytes in one frame from a front end; a guest could be sent a tenth of it (``wire.frames``).
_LONGEST_FRAME = 256 << 20


@dataclass(frozen=True, slots=True)
class Connection:
    """What a connection file says."""

    path: Path
    info: dict[str, Any]

    @property
    def key(self) -> bytes:
        """The key that messages are signed with."""
        return str(self.info.get("key", "")).encode()

    @property
    def scheme(self) -> str:
        """How messages are signed, e.g. ``hmac-sha256``."""
        return str(self.info.get("signature_scheme", "hmac-sha256"))


def read_connection(path: Path) -> Connection:
    """Return the connection described at ``path``; raises ``StartError``.

    A key that messages can't be checked with would let everybody in.
    """
    try:
        found = Connection(path, msgspec.json.decode(path.read_bytes(), type=dict[str, Any]))
        _check_key(found)
    except (OSError, ValueError, msgspec.MsgspecError) as exc:
        raise StartError(f"connection file {path}: {exc}") from None
    return found


def _check_key(connection: Connection) -> None:
    if not isinstance(connection.info.get("key", ""), str):
        raise ValueError("its key is not text")  # noqa: TRY004 - one kind for whatever is wrong
    method, _, digest = connection.scheme.partition("-")
    if method != "hmac":
        raise ValueError(f"signature_scheme {connection.scheme[:100]!r} is not hmac with a digest")
    hmac.digest(b"key", b"", digest)


def bind(context: zmq.Context[Any], connection: Connection) -> dict[str, zmq.Socket[bytes]]:
    """Bind every socket; ports given as 0 are chosen here and written back to the file.

    Raises ``StartError``.
    """
    try:
        return _bind_all(context, connection)
    except (zmq.ZMQError, OSError, ValueError, TypeError, KeyError) as exc:
        raise StartError(f"connection file {connection.path}: {exc}") from None


def _bind_all(context: zmq.Context[Any], connection: Connection) -> dict[str, zmq.Socket[bytes]]:
    sockets: dict[str, zmq.Socket[bytes]] = {}
    chosen: dict[str, int] = {}
    for name, kind in KINDS.items():
        sock = context.socket(kind)
        sock.linger = _LINGER_MS
        # Queues to front ends grow rather than drop: a lost idle status would hang one. `outflow`
        # bounds what a guest adds. What comes in waits with its sender, and a frame that announces
        # more than this is not read.
        sock.sndhwm = 0
        sock.maxmsgsize = _LONGEST_FRAME
        if kind == zmq.ROUTER:
            sock.router_handover = 1
        else:
            sock.xpub_verbose = 1  # or the second front end would not be greeted
            sock.set(zmq.TCP_MAXRT, _STALLED_MS)
            sock.sndhwm = _STALLED_MESSAGES
        _encrypt(sock, connection.info)
        port = _bind(sock, connection.info, int(connection.info.get(f"{name}_port", 0)))
        if port != connection.info.get(f"{name}_port"):
            chosen[f"{name}_port"] = port
        sockets[name] = sock
    if chosen:
        _rewrite(connection.path, connection.info | chosen)
    return sockets


def _encrypt(sock: zmq.Socket[bytes], info: dict[str, Any]) -> None:
    """Have CURVE (ZeroMQ RFC 26) on the socket when the connection file carries keys."""
    secret = info.get("curve_secretkey")
    if secret:
        sock.curve_secretkey = str(secret).encode()
        sock.curve_publickey = str(info["curve_publickey"]).encode()
        sock.curve_server = True


def _bind(sock: zmq.Socket[bytes], info: dict[str, Any], port: int) -> int:
    transport, ip = info.get("transport", "tcp"), info.get("ip", "127.0.0.1")
    if transport == "tcp":
        if port == 0:
            return int(sock.bind_to_random_port(f"tcp://{ip}"))
        sock.bind(f"tcp://{ip}:{port}")
        return port
    if port == 0:
        port = 1
        while Path(f"{ip}-{port}").exists():
            port += 1
    sock.bind(f"ipc://{ip}-{port}")
    return port


def _rewrite(path: Path, info: dict[str, Any]) -> None:
    """Replace the connection file in one step, readable by its owner alone."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(info)))
    temporary.replace(path)
