r"""Cleans text, and JSON values, that a guest sent.

Terminals, and front ends that imitate one, act on ECMA-48 escape sequences. An allowlist decides
which stay: select graphic rendition (colours), erase in line, ``\r``, ``\b``, ``\t`` and ``\n``.
Every other sequence and control is dropped. Window titles, clipboard writes (OSC 52), links
(OSC 8), device strings, replies that a terminal would type back, cursor moves and clear-screen
could falsify earlier output or have effects outside the terminal.

The functions for text come first, from the strictest use to the loosest; then ``Cleaner``, which
turns any value into bounded JSON data.
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

    #: The name of the chart library that the page needs and does not carry itself; empty for none.
    library: str
    #: The beginning of the page as the guest sent it, without long scripts, for readers of text.
    page: str

    def __new__(
        cls, html: str, hosts: Collection[str] = (), *, library: str = "", page: str = ""
    ) -> Self:
        """Make a frame from finished HTML; ``hosts`` are lines in it that are the host's own."""
        frame = super().__new__(cls, html, hosts)
        frame.library = library
        frame.page = page
        return frame


_SUSPECT: Final = re.compile("[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
#: Separators that begin a new line to some readers but not to others. Exporters that indent a text,
#: or mark it as code, go by newlines; readers of the result that go by these would see a line
#: without the mark. Other such characters (vertical tab, form feed, file separators, next line) are
#: controls, and are dropped anyway.
_SEPARATOR: Final = re.compile("[\u2028\u2029]")
_LINE_END: Final = re.compile("\r\n?")
#: The ASCII characters that are not suspect. To delete these and see whether anything is left is
#: ten times as fast as a search.
_HARMLESS: Final = bytes({*b"\b\t\n\r", *range(0x20, 0x7F)})
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
#: The sequences and controls that are dropped. The first line has the ones that stay. An escape
#: character that begins no known sequence is dropped alone, so what is left of it can't become a
#: sequence together with the text that follows.
_CONTROL: Final = re.compile(
    "(?!\x1b\\[[0-9;:]{0,64}m|\x1b\\[[0-2]?K)(?:"
    "\x1b[\\]PX^_][^\x07\x1b\x9c\n\r]*+(?:\x07|\x1b\\\\|\x9c)"
    "|\x1b\\[[0-?]*+[ -/]*+[@-~]"
    "|\x1b[ -/]*+[0-~]"
    "|[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f])"
)
_COLOUR: Final = re.compile("\x1b\\[[0-9;:]*m")
_NOT_SHOWN: Final = re.compile("\x1b\\[[0-9;:]*m|\x1b\\[[0-2]?K|[\b\r]")
#: The beginning of a sequence, at a text's end, that the next write may complete.
_TAIL: Final = re.compile("\x1b(?:\\[[0-9;:]{0,64})?\\Z")


def is_plain(text: str) -> bool:
    """Return whether ``text`` has nothing to clean, and can be sent as it is."""
    if text.isascii():
        return not text.encode("ascii").translate(None, _HARMLESS)
    return _SUSPECT.search(text) is None


def clean_text(text: Any) -> str:
    """Return ``text`` as ``clean_stream_text`` does, with newlines for carriage returns.

    For a text that is shown as a whole: it redraws no line, so a carriage return only ends one.
    """
    text = clean_stream_text(text)
    return _LINE_END.sub("\n", text) if "\r" in text else text


def clean_stream_text(text: Any) -> str:
    """Return ``text`` as ``clean_controls`` does, with newlines for Unicode line separators.

    For a stream: carriage returns stay, since progress bars redraw their line with them.
    """
    text = clean_controls(text)
    return text if text.isascii() else _SEPARATOR.sub("\n", text)


def clean_controls(text: Any) -> str:
    """Return ``text`` without harmful sequences, and with U+FFFD for lone surrogates.

    Bytes are decoded as UTF-8. Any other value that is not text becomes an empty text.
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
    """Return ``text`` as one line without controls or colours, at most ``limit`` characters.

    At most the first ``16 * limit`` bytes or characters are cleaned, which bounds the time.
    """
    if isinstance(text, str | bytes | bytearray):
        text = text[: 16 * limit]
    visible_text = _NOT_SHOWN.sub("", clean_controls(text)[: 4 * limit])
    line = " ".join(visible_text.splitlines())
    return "".join(char if char.isprintable() else " " for char in line[:limit])


def without_styles(text: str) -> str:
    """Return cleaned text without colours, and with the last state of each redrawn line.

    A progress bar becomes one line. The text must be whole: join its pieces first.
    """
    if "\r" in text:
        text = "\n".join(map(_last_state, text.split("\n")))
    return _NOT_SHOWN.sub("", text)


def _last_state(line: str) -> str:
    """Return the last part of a line that is not empty. Carriage returns separate the parts.

    Colours alone count as empty. Blanks, and a sequence that erases the line, do not.
    """
    if "\r" not in line:
        return line
    return next(filter(None, reversed(_COLOUR.sub("", line).split("\r"))), "")


def cut(text: str, limit: int, beyond: int = 0) -> str:
    """Cut ``text`` to ``limit`` characters, and add a line that says how many are left out.

    ``beyond`` more characters were cut from the text before.
    """
    characters_left = max(0, len(text) - limit) + beyond
    if not characters_left:
        return text
    return f"{text[:limit]}\n[cellblock: {characters_left:,} more characters left out]\n"


def clean_and_cut(text: Any, limit: int) -> str:
    """Return ``text`` as ``clean_text`` does, cut to ``limit`` characters.

    Only the first ``4 * limit`` characters are cleaned, which bounds the time.
    """
    if not isinstance(text, str):
        text = clean_controls(text)
    return cut(clean_text(text[: 4 * limit]), limit, beyond=max(0, len(text) - 4 * limit))


def split_tail(text: str) -> tuple[str, str]:
    """Split off an escape sequence that is unfinished at the end of ``text``.

    Prepend it to the next write. A pipe is read at arbitrary points, and the second half of a
    colour that is cut in two would show as text.
    """
    start = text.rfind("\x1b", -72)
    if start < 0 or not _TAIL.match(text, start):
        return text, ""
    return text[:start], text[start:]


# --- any value to JSON data -------------------------------------------------------------------
#
# JSON data that can be sent: bounded, finite numbers, text as keys, no lone surrogates.

#: JSON numbers beyond 64 bits are refused by some encoders and decoders.
_INTEGER_BITS: Final = 63


class TooLargeError(Exception):
    """A value is beyond its bound of depth, nodes or characters. Never leaves the gateway."""


class Cleaner:
    """Turns one value into JSON data, within bounds. Its attributes are what is left of them.

    ``nodes`` bounds the number of values, ``chars`` the characters of texts and keys (each item of
    a container counts as four more), ``depth`` the nesting. For one value only.
    """

    __slots__ = ("chars", "depth", "nodes")

    def __init__(self, *, nodes: int, chars: int, depth: int) -> None:
        self.nodes = nodes
        self.chars = chars
        self.depth = depth

    def clean(self, value: Any, depth: int = 0) -> Any:
        """Return ``value`` as JSON data; raises ``TooLargeError`` beyond a bound.

        Bytes become base64, dates ISO 8601. Infinite numbers, NaN, integers beyond 64 bits and
        values of unknown types become null.
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
        """Return a value that is no JSON type: bytes as base64, a date as text, others as null."""
        if isinstance(value, bytes | bytearray | memoryview):
            if len(value) > self.chars:
                raise TooLargeError
            return self._text(b64encode(value).decode("ascii"))
        return value.isoformat() if isinstance(value, date) else None


# --- JSON data to bytes -----------------------------------------------------------------------


def _as_text(value: object) -> str:
    """Encode a subclass of str, such as the markup type of cards, as its text."""
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


encode: Final = msgspec.json.Encoder(enc_hook=_as_text).encode


def json_size(value: Any) -> int:
    """Return how many bytes of JSON ``value`` is sent to a front end as."""
    return len(encode(value))


# --- refusals ---------------------------------------------------------------------------------


class RefusedError(Exception):
    """Nothing of a value may be shown. Its message says why. Never leaves the gateway."""
