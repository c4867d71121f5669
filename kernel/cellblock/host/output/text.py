r"""Text for terminals and front ends that imitate one: ECMA-48 sequences, settled by allowlist.

Kept: select graphic rendition (colours), erase in line, ``\r``, ``\b``, ``\t`` and ``\n``.
Dropped: every other sequence and control. Window titles, clipboard writes (OSC 52), links
(OSC 8), device strings, replies that a terminal would type back, cursor moves and clear-screen
could lie about earlier output or reach past the terminal.
"""

from __future__ import annotations

import math
import re
from base64 import b64encode
from datetime import date
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from cellblock.render.headings import OwnLines

if TYPE_CHECKING:
    from collections.abc import Collection


class Frame(OwnLines):
    """HTML that shows a page in frames of its own (``frames.framed``)."""

    __slots__ = ("library", "page")

    #: The name of the chart library that the page takes from another output; empty for none.
    library: str
    #: The beginning of the page as the guest sent it, without long scripts: for who reads its text.
    page: str

    def __new__(
        cls, html: str, hosts: Collection[str] = (), *, library: str = "", page: str = ""
    ) -> Self:
        """Make one of finished HTML."""
        frame = super().__new__(cls, html, hosts)
        frame.library = library
        frame.page = page
        return frame


_SUSPECT: Final = re.compile("[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
#: What begins a line to one reader and not to the next: exporters indent a text, or mark it as
#: code, by lines that end with a newline, and what reads the result knows others. The rest of
#: those (vertical tab, form feed, file separators, next line) are controls, and go.
_SEPARATOR: Final = re.compile("[\u2028\u2029]")
_LINE_END: Final = re.compile("\r\n?")
#: Of ASCII what is not suspect: taken away in one pass, which is ten times as fast as looking.
_HARMLESS: Final = bytes({*b"\b\t\n\r", *range(0x20, 0x7F)})
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
#: What goes: all but the sequences that the first line has. An escape that starts nothing known
#: goes by itself, so what is left can't join up with what follows it.
_CONTROL: Final = re.compile(
    "(?!\x1b\\[[0-9;:]{0,64}m|\x1b\\[[0-2]?K)(?:"
    "\x1b[\\]PX^_][^\x07\x1b\x9c\n\r]*+(?:\x07|\x1b\\\\|\x9c)"
    "|\x1b\\[[0-?]*+[ -/]*+[@-~]"
    "|\x1b[ -/]*+[0-~]"
    "|[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f])"
)
_COLOUR: Final = re.compile("\x1b\\[[0-9;:]*m")
_NOT_SHOWN: Final = re.compile("\x1b\\[[0-9;:]*m|\x1b\\[[0-2]?K|[\b\r]")
#: The start of a sequence that the next write may complete.
_TAIL: Final = re.compile("\x1b(?:\\[[0-9;:]{0,64})?\\Z")


def is_plain(text: str) -> bool:
    """Return whether ``text`` can be sent as it is."""
    if text.isascii():
        return not text.encode("ascii").translate(None, _HARMLESS)
    return _SUSPECT.search(text) is None


def clean_text(text: Any) -> str:
    """Return ``text`` as ``clean_stream_text`` does, and its lines end with newlines only.

    A text that is shown whole redraws no line, so a carriage return is nothing but a line's end.
    """
    text = clean_stream_text(text)
    return _LINE_END.sub("\n", text) if "\r" in text else text


def clean_stream_text(text: Any) -> str:
    """Return ``text`` as ``clean_controls`` does, without separators of lines and paragraphs.

    Carriage returns stay, with which progress bars redraw their line.
    """
    text = clean_controls(text)
    return text if text.isascii() else _SEPARATOR.sub("\n", text)


def clean_controls(text: Any) -> str:
    """Return ``text`` without harmful sequences, lone surrogates replaced by U+FFFD.

    Bytes are read as UTF-8; anything else that is not text becomes empty.
    """
    if isinstance(text, bytes | bytearray):
        text = bytes(text).decode("utf-8", "replace")
    if not isinstance(text, str):
        return ""
    if is_plain(text):
        return text
    text = _CONTROL.sub("", text)
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def clean_line(text: Any, limit: int) -> str:
    """Return ``text`` as one line without any control at all, at most ``limit`` characters.

    Of bytes and text no more than 16 times as many are looked at.
    """
    if isinstance(text, str | bytes | bytearray):
        text = text[: 16 * limit]
    shown = _NOT_SHOWN.sub("", clean_controls(text)[: 4 * limit])
    line = " ".join(shown.splitlines())
    return "".join(char if char.isprintable() else " " for char in line[:limit])


def without_styles(text: str) -> str:
    """Return cleaned text without colours, and of each line that was redrawn the last state.

    A progress bar is one line. Whoever has a text in pieces joins them first.
    """
    if "\r" in text:
        text = "\n".join(map(_last_state, text.split("\n")))
    return _NOT_SHOWN.sub("", text)


def _last_state(line: str) -> str:
    """Return what stands behind a line's last carriage return that something follows.

    Colours are nothing; blanks are something, and so is a line that is erased.
    """
    if "\r" not in line:
        return line
    return next(filter(None, reversed(_COLOUR.sub("", line).split("\r"))), "")


def cut(text: str, limit: int, beyond: int = 0) -> str:
    """Return ``text`` within ``limit`` characters, saying how much was left out.

    That is ``beyond`` more than can be seen of it.
    """
    left = max(0, len(text) - limit) + beyond
    if not left:
        return text
    return f"{text[:limit]}\n[cellblock: {left:,} more characters left out]\n"


def clean_and_cut(text: Any, limit: int) -> str:
    """Return ``text`` as ``clean_text`` does, within ``limit`` characters.

    No more than four times as many are cleaned, which takes time.
    """
    if not isinstance(text, str):
        text = clean_controls(text)
    return cut(clean_text(text[: 4 * limit]), limit, beyond=max(0, len(text) - 4 * limit))


def split_tail(text: str) -> tuple[str, str]:
    """Split off an escape sequence that ``text`` leaves unfinished, for the next write.

    A pipe is read at arbitrary points; without this a colour cut in two would show as text.
    """
    start = text.rfind("\x1b", -72)
    if start < 0 or not _TAIL.match(text, start):
        return text, ""
    return text[:start], text[start:]


# Any value to JSON data that can be sent: finite, bounded, string keys, no lone surrogates.

#: JSON numbers beyond 64 bits are refused by some encoders and decoders.
_INTEGER_BITS: Final = 63


class TooLargeError(Exception):
    """A value is over its depth, node or character bound; never leaves the gateway."""


class Cleaner:
    """Cleans one value, counting what it costs; single use."""

    __slots__ = ("chars", "depth", "nodes")

    def __init__(self, *, nodes: int, chars: int, depth: int) -> None:
        self.nodes = nodes
        self.chars = chars
        self.depth = depth

    def clean(self, value: Any, depth: int = 0) -> Any:
        """Return ``value`` as JSON data.

        Non-finite numbers become null, bytes base64 and unknown types null.
        Raises ``TooLargeError`` when a bound is passed.
        """
        kind = type(value)
        if kind is str:
            return self._text(value)
        if kind is float:
            return value if math.isfinite(value) else None
        if value is None or kind is bool:
            return value
        if kind is int:
            return value if value.bit_length() <= _INTEGER_BITS else None
        if kind is dict or kind is list or kind is tuple:
            return self._container(value, depth + 1)
        return self._other(value)

    def _text(self, text: str) -> str:
        self.chars -= len(text)
        if self.chars < 0:
            raise TooLargeError
        return text if text.isascii() else _SURROGATE.sub("\ufffd", text)

    def _container(self, value: Any, depth: int) -> Any:
        self.nodes -= len(value) + 1
        self.chars -= 4 * len(value)
        if self.nodes < 0 or self.chars < 0 or depth > self.depth:
            raise TooLargeError
        if type(value) is dict:
            return {self._key(key): self.clean(item, depth) for key, item in value.items()}
        return [self.clean(item, depth) for item in value]

    def _key(self, key: Any) -> str:
        if type(key) is str:
            return self._text(key)
        if isinstance(key, bytes):
            return self._text(key[: self.chars + 1].decode("utf-8", "replace"))
        if key is None or isinstance(key, bool | int | float):
            return self._text(repr(self.clean(key)))
        return type(key).__name__

    def _other(self, value: Any) -> Any:
        if isinstance(value, bytes | bytearray | memoryview):
            if len(value) > self.chars:
                raise TooLargeError
            return self._text(b64encode(value).decode("ascii"))
        return value.isoformat() if isinstance(value, date) else None


# JSON data to the bytes in which front ends get it.


def _as_text(value: object) -> str:
    """Let str subclasses pass, such as the markup type that cards are built from."""
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


encode: Final = msgspec.json.Encoder(enc_hook=_as_text).encode


def json_size(value: Any) -> int:
    """Return how many bytes ``value`` takes on its way to a front end."""
    return len(encode(value))


# Why a value is not passed on.


class RefusedError(Exception):
    """Nothing of a value may be shown; its message says why. Never leaves the gateway."""
