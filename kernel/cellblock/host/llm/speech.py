"""What the worker answers: a completion, or why there is none; and what is known of its cost."""

from __future__ import annotations

import msgspec


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """How an endpoint is asked; ``max_bytes`` bounds the text of one answer."""

    base_url: str
    key_env: str
    keyring: str
    timeout: float
    retries: int
    max_in_flight: int
    token_parameter: str
    max_bytes: int


class Completed(msgspec.Struct, frozen=True, kw_only=True, tag="completed"):
    """``value`` is what the cell gets, encoded."""

    value: msgspec.Raw
    tokens: int


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """No completion. ``tokens`` is None where it may have been made, and paid for."""

    kind: str
    message: str
    tokens: int | None = 0
