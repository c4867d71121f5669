"""Displays and results as front ends get them: cleaned, measured, under the id of a display."""

from __future__ import annotations

from typing import Any

import msgspec

from cellblock.host.output import gateway
from cellblock.host.output.encoding import json_size
from cellblock.wire import messages as wire

Shown = wire.Display | wire.Result
encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Shown).decode


def id_of(message: Shown) -> str | None:
    """Return the id under which a display is updated."""
    name = None if isinstance(message, wire.Result) else message.display_id
    return gateway.clean_name(name) if name is not None else None


def is_update(message: Shown) -> bool:
    """Say whether it stands for displays that were shown before."""
    return isinstance(message, wire.Display) and message.update


def raw_size(message: Shown) -> int:
    """Return the bytes of what it shows as it came."""
    return sum(len(v) if isinstance(v, str | bytes) else 0 for v in message.data.values())


def content_of(
    message: Shown, name: str | None, data: dict[str, Any]
) -> tuple[dict[str, Any], int]:
    """Return the content of a message with that id, of which ``data`` is left, and its bytes."""
    metadata = gateway.clean_metadata(message.metadata)
    size = sum(len(v) if isinstance(v, str) else json_size(v) for v in data.values())
    content = {"data": data, "metadata": metadata}
    return content, size + json_size(metadata) + len(name or "")


def finished(
    message: Shown, content: dict[str, Any], name: str | None, *, count: int, update: bool
) -> tuple[str, dict[str, Any]]:
    """Return what is published: a message's type and its whole content."""
    if isinstance(message, wire.Result):
        return "execute_result", content | {"execution_count": count}
    content["transient"] = {} if name is None else {"display_id": name}
    return "update_display_data" if update else "display_data", content
