r"""Text for terminals and front ends that imitate one: ECMA-48 sequences, settled by allowlist.

Kept: select graphic rendition (colours), erase in line, ``\r``, ``\b``, ``\t`` and ``\n``.
Dropped: every other sequence and control. Window titles, clipboard writes (OSC 52), links
(OSC 8), device strings, replies that a terminal would type back, cursor moves and clear-screen
could lie about earlier output or reach past the terminal.
"""

from __future__ import annotations

import re
from typing import Any, Final

_SUSPECT: Final = re.compile("[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
#: Of ASCII what is not suspect: taken away in one pass, which is ten times as fast as looking.
_HARMLESS: Final = bytes({*b"\b\t\n\r", *range(0x20, 0x7F)})
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
#: Group 1 is what stays. An escape that starts nothing known goes by itself, so what is left
#: can't join up with what follows it.
_CONTROL: Final = re.compile(
    "(\x1b\\[[0-9;:]{0,64}m|\x1b\\[[0-2]?K)"
    "|\x1b[\\]PX^_][^\x07\x1b\x9c\n\r]*+(?:\x07|\x1b\\\\|\x9c)"
    "|\x1b\\[[0-?]*+[ -/]*+[@-~]"
    "|\x1b[ -/]*+[0-~]"
    "|[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)
_NOT_SHOWN: Final = re.compile("\x1b\\[[0-9;:]*m|\x1b\\[[0-2]?K|[\b\r]")
#: The start of a sequence that the next write may complete.
_TAIL: Final = re.compile("\x1b(?:\\[[0-9;:]{0,64})?\\Z")


def is_plain(text: str) -> bool:
    """Tell whether ``text`` can be sent as it is."""
    if text.isascii():
        return not text.encode("ascii").translate(None, _HARMLESS)
    return _SUSPECT.search(text) is None


def clean_text(text: Any) -> str:
    """Return ``text`` without harmful sequences, lone surrogates replaced by U+FFFD.

    Bytes are read as UTF-8; anything else that is not text becomes empty.
    """
    if isinstance(text, bytes | bytearray):
        text = bytes(text).decode("utf-8", "replace")
    if not isinstance(text, str):
        return ""
    if is_plain(text):
        return text
    text = _CONTROL.sub(r"\1", text)
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def clean_line(text: Any, limit: int) -> str:
    """Return ``text`` as one line without any control at all, at most ``limit`` characters."""
    shown = _NOT_SHOWN.sub("", cut(clean_text(text), 4 * limit))
    line = " ".join(shown.splitlines())
    return "".join(char if char.isprintable() else " " for char in line[:limit])


def without_styles(text: str) -> str:
    """Return cleaned text without colours; what would redraw a line starts a new one."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _NOT_SHOWN.sub("", text)


def cut(text: str, limit: int) -> str:
    """Return ``text`` within ``limit`` characters, saying how much was left out."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[cellblock: {len(text) - limit:,} more characters left out]\n"


def split_tail(text: str) -> tuple[str, str]:
    """Split off an escape sequence that ``text`` leaves unfinished, for the next write.

    A pipe is read at arbitrary points; without this a colour cut in two would show as text.
    """
    start = text.rfind("\x1b", -72)
    if start < 0 or not _TAIL.match(text, start):
        return text, ""
    return text[:start], text[start:]
