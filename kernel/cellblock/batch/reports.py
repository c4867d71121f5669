"""The file of a report: what whoever asked for it named, and nothing that a link there leads to.

A report often lies in a checkout, whose author may have put a link in its place: following that
would overwrite any file of the user's, with text that is partly the author's.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOCTTY | os.O_CLOEXEC
#: Where links are the system's: ``/dev/stdout`` is one.
_SYSTEM: Final = ("/dev/", "/proc/")


def write(path: Path, text: str) -> None:
    """Write a report; what UTF-8 has no form for is spelled by its number. Raises OSError."""
    follows = os.path.abspath(path).startswith(_SYSTEM)  # noqa: PTH100 - resolves no links
    try:
        descriptor = os.open(path, _WRITE if follows else _WRITE | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link, and none is followed") from None
        raise
    with os.fdopen(descriptor, "wb") as file:
        file.write(text.encode("utf-8", "backslashreplace"))
