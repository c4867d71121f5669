"""Jupyter messages: ``MessageCodec`` signs, parses and composes them; then the contents of replies.

Source: "Messaging in Jupyter", protocol 5.3, section on the wire protocol. jupyter_client is not
used, since its import costs the host 60 ms and 9 MiB, and its ``Session`` takes four times as long
to read a request (ADR 0001). Also, a parent header is sent back here as the bytes that it came as.
"""

from __future__ import annotations

import hmac
import itertools
import json
import os
import platform
import runpy
import uuid
from datetime import UTC, datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from cellblock import __version__
from cellblock.analysis import check_complete
from cellblock.host.output import gateway
from cellblock.host.output.text import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cellblock.host.session.history import History
    from cellblock.wire import messages as wire


PROTOCOL = "5.3"
DELIMITER = b"<IDS|MSG>"
_PARTS = 5
#: Signatures that are remembered, so that a message can't be sent twice; as in jupyter_client.
_REMEMBERED = 1 << 16


_decode = msgspec.json.Decoder().decode


def _read(part: bytes) -> Any:
    """Decode one part of a message as strict JSON or, if that fails, as Python's ``json`` does.

    Python front ends send NaN, and lone surrogates as escapes. The latter become question marks.
    """
    try:
        return _decode(part)
    except msgspec.DecodeError:
        text = json.dumps(json.loads(part), ensure_ascii=False)
        return json.loads(text.encode("utf-8", "replace"))


class MessageError(ValueError):
    """The frames are not a message of this protocol, or not signed with this kernel's key."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A received message, checked and decoded. ``raw_header`` is sent back in replies."""

    identities: list[bytes]
    raw_header: bytes
    header: dict[str, Any]
    parent: dict[str, Any]
    metadata: dict[str, Any]
    content: dict[str, Any]
    buffers: list[bytes]

    @classmethod
    def own(cls, kind: str, msg_id: str, content: dict[str, Any]) -> Message:
        """Make a request of the kernel's own. It has no sender, so nobody gets the reply."""
        header = {"msg_id": msg_id, "msg_type": kind, "version": PROTOCOL}
        return cls(
            identities=[],
            raw_header=encode(header),
            header=header,
            parent={},
            metadata={},
            content=content,
            buffers=[],
        )

    @property
    def kind(self) -> str:
        """The message's type, such as ``execute_request``."""
        return str(self.header.get("msg_type", ""))


class MessageCodec:
    """Reads and writes messages, signed with one connection's key."""

    def __init__(self, key: bytes, digest: str = "sha256") -> None:
        self._key = key
        self._digest = digest
        self._session = uuid.uuid4().hex
        self._serial = itertools.count()
        self._seen: dict[bytes, None] = {}
        # Bytes that are not UTF-8 are lone surrogates in ``os.environ``, which JSON can't have.
        self._user = os.environ.get("USER", "username").encode("utf-8", "replace").decode()

    def parse(self, frames: list[bytes]) -> Message:
        """Return the message that the frames are; raises ``MessageError``."""
        try:
            start = frames.index(DELIMITER)
        except ValueError:
            raise MessageError("no delimiter") from None
        signature = frames[start + 1 : start + 2]
        parts = frames[start + 2 :]
        if len(parts) < _PARTS - 1 or not signature:
            raise MessageError("too few frames")
        self._check(signature[0], parts[: _PARTS - 1])
        try:
            header, parent, metadata, content = map(_read, parts[: _PARTS - 1])
        except (ValueError, RecursionError) as exc:
            raise MessageError(f"undecodable: {exc}") from None
        if not all(isinstance(part, dict) for part in (header, parent, metadata, content)):
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
        """Raise ``MessageError`` for a signature that is invalid, or was received before.

        An empty key means no signatures.
        """
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
        """Return a new id, which no other message of this kernel has."""
        return f"{self._session}_{os.getpid()}_{next(self._serial)}"

    def compose(
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
        """Return the frames of a new message; ``content`` must be JSON data."""
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


# --- contents of replies ----------------------------------------------------------------------

#: Characters of a pattern that the history is searched with.
_LONGEST_PATTERN = 1_000


@cache
def _ipython_version() -> str:
    """Return the version of the IPython that cells run in, without importing it (90 ms)."""
    package = find_spec("IPython")
    if package is None or package.origin is None:
        return ""
    release = Path(package.origin).with_name("core") / "release.py"
    return str(runpy.run_path(str(release))["version"])


def kernel_info(*, subshells: bool = False) -> dict[str, Any]:
    """Return the content of ``kernel_info_reply``. Features that it does not list are missing."""
    version = platform.python_version()
    return {
        "protocol_version": PROTOCOL,
        # As under ipykernel, since front ends and tests depend on it.
        "implementation": "ipython",
        "implementation_version": _ipython_version(),
        "language_info": {
            "name": "python",
            "version": version,
            "mimetype": "text/x-python",
            "codemirror_mode": {"name": "ipython", "version": 3},
            "pygments_lexer": "ipython3",
            "nbconvert_exporter": "python",
            "file_extension": ".py",
        },
        "banner": f"cellblock {__version__}: Python {version}, every cell under policy."
        " %policy shows which.",
        "debugger": False,
        "supported_features": ["kernel subshells"] if subshells else [],
        "help_links": [
            {"text": "Python Reference", "url": f"https://docs.python.org/{version[:4]}"},
            {"text": "IPython Reference", "url": "https://ipython.org/documentation.html"},
        ],
    }


def is_complete(code: str) -> dict[str, Any]:
    """Return the content of ``is_complete_reply``, by IPython's transformer, in the host."""
    status, indent = check_complete(code)
    reply: dict[str, Any] = {"status": status}
    if status == "incomplete":
        reply["indent"] = " " * (indent or 0)
    return reply


def history_entries(store: History, content: dict[str, Any]) -> list[Any]:
    """Return the entries that a ``history_request`` asks for."""
    raw = bool(content.get("raw", True))
    count = max(0, _number(content.get("n")) or 0)
    match content.get("hist_access_type"):
        case "tail":
            entries = store.tail(count, raw=raw)
        case "range":
            start = _number(content.get("start")) or 0
            stop = _number(content.get("stop"))
            entries = store.range(_number(content.get("session")) or 0, start, stop, raw=raw)
        case "search":
            pattern = str(content.get("pattern") or "*")[:_LONGEST_PATTERN]
            unique = bool(content.get("unique", False))
            entries = store.search(pattern, count, raw=raw, unique=unique)
        case _:
            entries = []
    if content.get("output"):
        return [(session, line, (text, None)) for session, line, text in entries]
    return entries


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def completions(reply: wire.Completed | None, code: str, cursor: int) -> dict[str, Any]:
    """Return the content of ``complete_reply`` from a guest's answer; None means no completions.

    Front ends insert a single match without asking. A guest that named the whole cell as the span
    to replace could so write the user's next cell. So the span is cut to the cursor's line.
    """
    if reply is None:
        return {"matches": [], "cursor_start": cursor, "cursor_end": cursor, "metadata": {}}
    line_start = code.rfind("\n", 0, cursor) + 1
    line_end = code.find("\n", cursor)
    line_end = len(code) if line_end < 0 else line_end
    return {
        "matches": gateway.clean_matches(reply.matches),
        "cursor_start": min(max(reply.start, line_start), cursor),
        "cursor_end": max(min(reply.end, line_end), cursor),
        "metadata": {"_jupyter_types_experimental": gateway.clean_match_types(reply.types)},
    }


def comm_content(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a front end's comm message, with the known fields only, bounded."""
    data = content.get("data")
    known_fields: dict[str, Any] = {
        "comm_id": str(content.get("comm_id", ""))[:200],
        "data": data if isinstance(data, dict) else {},
    }
    for key in ("target_name", "target_module"):
        value = content.get(key)
        if isinstance(value, str):
            known_fields[key] = value[:200]
    return known_fields
