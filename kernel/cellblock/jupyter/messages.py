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
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

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
