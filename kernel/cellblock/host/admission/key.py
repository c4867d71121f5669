"""The key that manifests are signed with (HMAC, RFC 2104), and the numbers that they had last.

A secret of the user's like nbformat's ``notebook_secret``, and not that one: Jupyter signs a
notebook there whenever all its cells were run, which is not what approving is. Beside the key lies
the serial number of each manifest that was written here, so that an older one is known for what it
is, though its signature holds.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cellblock.errors import AdmissionError
from cellblock.host.admission import files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_BYTES: Final = 32
_MOST: Final = 256
_MOST_SERIALS: Final = 1 << 20
#: Said before what is signed, so that no signature is one of something else.
_PURPOSE: Final = b"cellblock approval, version 1\n"
_FETCH: Final = "Approve notebooks here (cellblock approve), or fetch the key that was used."


@dataclass(frozen=True, slots=True, repr=False)
class Key:
    """A key; ``id`` names it and does not give it away."""

    secret: bytes

    @property
    def id(self) -> str:
        """Sixteen hexadecimal digits."""
        return hmac.digest(self.secret, b"cellblock approval key", "sha256").hex()[:16]

    def sign(self, content: bytes) -> str:
        """Return the signature of ``content``: HMAC-SHA-256, in hex."""
        return hmac.new(self.secret, _PURPOSE + content, hashlib.sha256).hexdigest()

    def vouches(self, content: bytes, signature: str) -> bool:
        """Say whether ``signature`` is ours of ``content``."""
        return hmac.compare_digest(self.sign(content).encode(), signature.encode())


def read(path: Path) -> Key:
    """Return the key in a file of the user's own. Raises AdmissionError."""
    try:
        content, status = files.read(path, _MOST, what="the key", remedy=_FETCH)
        folder = path.parent.stat()
    except FileNotFoundError:
        message = "there is no key, so that nothing can have been approved"
        raise AdmissionError(message, file=str(path), key="approval.key", remedy=_FETCH) from None
    files.check_own(path, status, secret=True)
    files.check_own(path.parent, folder)
    with contextlib.suppress(ValueError):
        secret = bytes.fromhex(content.decode("ascii").strip())
        if len(secret) == _BYTES:
            return Key(secret)
    message = f"it holds no key: {_BYTES} bytes in hexadecimal"
    raise AdmissionError(message, file=str(path), key="approval.key", remedy=_FETCH)


def read_or_make(path: Path) -> tuple[Key, bool]:
    """Return the key, and whether it was made just now. Raises AdmissionError."""
    if not os.path.lexists(path):
        files.write(path, os.urandom(_BYTES).hex().encode() + b"\n")
        return read(path), True
    return read(path), False


# --- serial numbers ---------------------------------------------------------------------------


def serials(path: Path) -> dict[str, int]:
    """Return the last serial number by manifest's name; ``path`` is the key's. Raises."""
    beside = _serials_of(path)
    remedy = "If you know that no approval was taken back since, remove it."
    try:
        content, status = files.read(beside, _MOST_SERIALS, what="it", remedy=remedy)
    except FileNotFoundError:
        return {}
    files.check_own(beside, status)
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(content)
        if isinstance(found, dict) and all(type(n) is int for n in found.values()):
            return found
    message = "it does not hold the numbers of manifests"
    raise AdmissionError(message, file=str(beside), remedy=remedy)


def keep_serials(path: Path, numbers: Mapping[str, int]) -> None:
    """Write them. Raises AdmissionError."""
    files.write(_serials_of(path), json.dumps(numbers, indent=0, sort_keys=True).encode())


def _serials_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.serials")
