"""Any value to JSON data that can be sent: finite, bounded, string keys, no lone surrogates."""

from __future__ import annotations

import math
import re
from base64 import b64encode
from datetime import date
from typing import Any, Final

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
#: JSON numbers beyond 64 bits are refused by some encoders and decoders.
_INTEGER_BITS: Final = 63


class TooLargeError(Exception):
    """A value is over its depth, node or character bound; never leaves the gateway."""


class Cleaner:
    """Cleans one value, counting what it costs; single use."""

    __slots__ = ("chars", "depth", "nodes")

    def __init__(self, *, nodes: int, chars: int, depth: int) -> None:
        self.nodes, self.chars, self.depth = nodes, chars, depth

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
