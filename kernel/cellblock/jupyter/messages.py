"""Jupyter messages on the wire: signing, parsing, composing.

Source: "Messaging in Jupyter", protocol 5.3, the wire protocol section. Written here rather than
taken from jupyter_client because importing that costs a kernel 80 ms and 25 MB before its first
reply, and because a parent header is sent back as the bytes it came as.
"""

from __future__ import annotations

import hmac
import itertools
import json
import os
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import zmq

from cellblock.errors import StartError
from cellblock.host.output.text import encode

if TYPE_CHECKING:
    from collections.abc import Sequence


PROTOCOL = "5.3"
DELIMITER = b"<IDS|MSG>"
_PARTS = 5
#: Signatures remembered, so that a message can't be played back; as many as jupyter_client does.
_REMEMBERED = 1 << 16


_decode = msgspec.json.Decoder().decode


def _read(part: bytes) -> Any:
    """Decode one part, as strictly as JSON is, or as leniently as Python's.

    Python front ends send NaN, and lone surrogates as escapes; the latter become question marks.
    """
    try:
        return _decode(part)
    except msgspec.DecodeError:
        text = json.dumps(json.loads(part), ensure_ascii=False)
        return json.loads(text.encode("utf-8", "replace"))


class MessageError(ValueError):
    """Frames that are not a message of this protocol, or not one of ours."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was received: checked, decoded, its header kept as bytes for replies."""

    identities: list[bytes]
    raw_header: bytes
    header: dict[str, Any]
    parent: dict[str, Any]
    metadata: dict[str, Any]
    content: dict[str, Any]
    buffers: list[bytes]

    @property
    def kind(self) -> str:
        """The message's type, e.g. ``execute_request``."""
        return str(self.header.get("msg_type", ""))


class Composer:
    """Reads and writes messages for one connection's key."""

    def __init__(self, key: bytes, scheme: str = "hmac-sha256") -> None:
        self._key = key
        self._digest = scheme.partition("-")[2] or "sha256"
        self._session = uuid.uuid4().hex
        self._serial = itertools.count()
        self._seen: dict[bytes, None] = {}
        # What is not UTF-8 in an environment is read as lone surrogates, which JSON can't carry.
        self._user = os.environ.get("USER", "username").encode("utf-8", "replace").decode()

    def parse(self, frames: list[bytes]) -> Message:
        """Return the message in ``frames``; raises ``MessageError``."""
        try:
            start = frames.index(DELIMITER)
        except ValueError:
            raise MessageError("no delimiter") from None
        signature, parts = frames[start + 1 : start + 2], frames[start + 2 :]
        if len(parts) < _PARTS - 1 or not signature:
            raise MessageError("too few frames")
        self._check(signature[0], parts[: _PARTS - 1])
        try:
            header, parent, metadata, content = map(_read, parts[: _PARTS - 1])
        except (ValueError, RecursionError) as exc:
            raise MessageError(f"undecodable: {exc}") from None
        if not all(isinstance(p, dict) for p in (header, parent, metadata, content)):
            raise MessageError("a part is not an object")
        return Message(
            identities=frames[:start],
            raw_header=parts[0],
            header=header,
            parent=parent,
            metadata=metadata,
            content=content,
            buffers=parts[_PARTS - 1 :],
        )

    def _check(self, signature: bytes, parts: Sequence[bytes]) -> None:
        if not self._key:
            return
        if not hmac.compare_digest(signature, self._sign(parts)):
            raise MessageError("invalid signature")
        if signature in self._seen:
            raise MessageError("duplicate signature")
        self._seen[signature] = None
        if len(self._seen) > _REMEMBERED:
            for old in list(itertools.islice(self._seen, _REMEMBERED // 4)):
                del self._seen[old]

    def _sign(self, parts: Sequence[bytes]) -> bytes:
        if not self._key:
            return b""
        return hmac.digest(self._key, b"".join(parts), self._digest).hex().encode()

    def new_id(self) -> str:
        """Return an id that no message of this kernel has."""
        return f"{self._session}_{os.getpid()}_{next(self._serial)}"

    def compose(  # noqa: PLR0913 - the parts of a message
        self,
        kind: str,
        content: Any,
        *,
        parent: Message | None = None,
        identities: Sequence[bytes] = (),
        metadata: Any = None,
        buffers: Sequence[bytes] = (),
        msg_id: str = "",
    ) -> list[bytes]:
        """Return the frames of a new message; ``content`` must be JSON-able."""
        header = {
            "msg_id": msg_id or self.new_id(),
            "msg_type": kind,
            "username": self._user,
            "session": self._session,
            "date": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
            "version": PROTOCOL,
        }
        parts = [
            encode(header),
            parent.raw_header if parent is not None else b"{}",
            encode(metadata or {}),
            encode(content),
        ]
        return [*identities, DELIMITER, self._sign(parts), *parts, *buffers]


# A connection file, and the five sockets it describes.

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
