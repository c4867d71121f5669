"""A line of an audit log: a JSON object whose first fields bind it to the line before.

::

    {"v":1,"seq":7,"session":"…","prev":"<hash of line 6>","time":"…","kind":"…",…,"hash":"…"}

``hash`` is the SHA-256, in hex, of the line's bytes before ``,"hash":``. So a line is read byte for
byte: another spelling of the same JSON is another record. ``prev`` of a session's first line is 64
zeros.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from cellblock.host.audit.records import VERSION

FIRST: Final = "0" * 64
_HASH: Final = b',"hash":"'
_END: Final = b'"}\n'
_TAIL: Final = len(_HASH) + 64 + len(_END)
_decode = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(frozen=True, slots=True)
class Entry:
    """A line that was read; ``intact`` says whether its hash is that of its bytes."""

    seq: int
    session: str
    prev: str
    hash: str
    record: dict[str, Any]
    intact: bool

    @property
    def kind(self) -> str:
        """What kind of record it is."""
        return str(self.record.get("kind", ""))


def line(body: bytes, *, seq: int, session: str, prev: str) -> tuple[bytes, str]:
    """Return a line with its end of line, and its hash; ``body`` is a JSON object's inside."""
    head = f'{{"v":{VERSION},"seq":{seq},"session":"{session}","prev":"{prev}",'.encode()
    told = head + body
    digest = hashlib.sha256(told).hexdigest()
    return told + _HASH + digest.encode() + _END, digest


def read(raw: bytes) -> Entry | None:
    """Return what a line says, None when it is no record of this version."""
    told, tail = raw[:-_TAIL], raw[-_TAIL:]
    if not tail.startswith(_HASH) or not tail.endswith(_END):
        return None
    try:
        digest = tail[len(_HASH) : -len(_END)].decode("ascii")
        record = _decode(raw)
        seq, session, prev = record["seq"], record["session"], record["prev"]
    except (msgspec.DecodeError, KeyError, UnicodeDecodeError, RecursionError):
        return None
    if type(seq) is not int or record.get("v") != VERSION:
        return None
    intact = hashlib.sha256(told).hexdigest() == digest
    return Entry(seq, str(session), str(prev), digest, record, intact)
