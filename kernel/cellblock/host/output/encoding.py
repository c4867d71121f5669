"""JSON data to the bytes in which front ends get it."""

from __future__ import annotations

from typing import Any, Final

import msgspec


def _as_text(value: object) -> str:
    """Let str subclasses pass, such as the markup type that cards are built from."""
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


encode: Final = msgspec.json.Encoder(enc_hook=_as_text).encode


def json_size(value: Any) -> int:
    """Return how many bytes ``value`` takes on its way to a front end."""
    return len(encode(value))
