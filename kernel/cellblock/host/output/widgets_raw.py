"""What passes as it is said, to an operator's module or target: bounded, and no more than that."""

from __future__ import annotations

import re
from typing import Any

from cellblock.host.output import gateway

_LONGEST_PATH = 20


def said(data: dict[Any, Any], buffers: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    """Return a message's data, bounded, and its buffers, if they have plain places."""
    cleaned = gateway.clean_comm(data)
    if "buffer_paths" not in cleaned:
        return cleaned, buffers
    cleaned["buffer_paths"], buffers = plain_paths(cleaned["buffer_paths"], buffers)
    return cleaned, buffers


def plain_paths(paths: Any, buffers: list[bytes]) -> tuple[list[Any], list[bytes]]:
    """Return the paths, each with its buffer, that stay within plain objects and lists."""
    kept = [
        (path, buffer)
        for path, buffer in zip(paths if type(paths) is list else [], buffers, strict=False)
        if type(path) is list and 0 < len(path) <= _LONGEST_PATH and all(map(_is_step, path))
    ]
    return [path for path, _ in kept], [buffer for _, buffer in kept]


def _is_step(part: Any) -> bool:
    """Refuse the names through which a path leaves an object for its class."""
    if type(part) is int:
        return part >= 0
    return type(part) is str and part not in {"__proto__", "constructor", "prototype"}


def version(value: Any) -> str:
    """Return a version as package managers write it, ``""`` for anything else."""
    return value if isinstance(value, str) and re.fullmatch(r"[\w.^~*+-]{1,40}", value) else ""
