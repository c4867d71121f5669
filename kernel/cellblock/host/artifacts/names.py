"""Names that cells chose, made such that a file may have them and a card may show them."""

from __future__ import annotations

import unicodedata
from typing import Final

#: Bytes of a name: a file system takes 255, and some are left for a number.
LONGEST: Final = 200
#: Characters that mean something to a shell, to a browser or to other file systems.
_AWKWARD: Final = frozenset("<>:\"\\|?*`$;&#%'")


def harmless(path: str) -> str:
    """Return a relative path, part by part, without what could hide, reorder or lead away.

    Letters stay as they are; blanks of any kind become spaces, anything else that is not seen, or
    that is awkward, an underscore. No part begins with a dot.
    """
    return "/".join(_harmless(part) for part in path.split("/") if part) or "_"


def _harmless(name: str) -> str:
    plain = unicodedata.normalize("NFC", name)
    shown = "".join(map(_shown, plain)).strip()
    if shown.startswith((".", "-", "~")):
        shown = "_" + shown[1:]
    return _cut(shown) or "_"


def _shown(char: str) -> str:
    if char.isspace():
        return " "
    return char if char.isprintable() and char not in _AWKWARD else "_"


def _cut(name: str) -> str:
    """Return a name that is short enough, with its extension."""
    if len(name.encode()) <= LONGEST:
        return name
    stem, dot, extension = name.rpartition(".")
    tail = f"{dot}{extension}" if dot and len(extension) <= 10 else ""  # noqa: PLR2004
    room = LONGEST - len(tail.encode())
    return (stem if tail else name).encode()[:room].decode("utf-8", "ignore") + tail


def numbered(name: str, number: int) -> str:
    """Return the same name with a number, before its extension: ``plot-2.png``."""
    head, slash, last = name.rpartition("/")
    stem, dot, extension = last.rpartition(".")
    inner = f"{stem}-{number}{dot}{extension}" if stem else f"{last}-{number}"
    return f"{head}{slash}{inner}"
