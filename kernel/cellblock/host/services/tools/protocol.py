"""What host and worker say to each other, over a socket of their own."""

from __future__ import annotations

import msgspec  # noqa: TC002 - a field's type

from cellblock.host.services.operations.catalog import OperationGrants  # noqa: TC001 - as above
from cellblock.wire.messages import Struct, Tool


class Load(Struct, tag="load", frozen=True, kw_only=True):
    """First: what to import, or else the operations to offer.

    The environment comes here, not where other processes read it.
    """

    entries: tuple[str, ...]
    operations: OperationGrants | None = None
    environment: dict[bytes, bytes]
    threads: int
    max_bytes: int


class Begin(Struct, tag="begin", frozen=True, kw_only=True):
    """Run a tool. ``arguments`` are as a guest encoded them."""

    number: int
    tool: str
    arguments: msgspec.Raw


class Cancel(Struct, tag="cancel", frozen=True, kw_only=True):
    """Stop a call; whatever comes of it is an answer."""

    number: int


class Loaded(Struct, tag="loaded", frozen=True, kw_only=True):
    """Everything is imported."""

    tools: tuple[Tool, ...]


class LoadFailed(Struct, tag="not_loaded", frozen=True, kw_only=True):
    """An entry is no tool; the worker ends after this."""

    entry: str
    message: str
    remedy: str


class Piece(Struct, tag="piece", frozen=True, kw_only=True):
    """More of what a call will have returned."""

    number: int
    text: str


class Progress(Struct, tag="said", frozen=True, kw_only=True):
    """How a call is getting on, for whoever waits for it."""

    number: int
    text: str


class Returned(Struct, tag="returned", frozen=True, kw_only=True):
    """A call ended with this value."""

    number: int
    value: msgspec.Raw


class Raised(Struct, tag="raised", frozen=True, kw_only=True):
    """A call ended with an exception of this type."""

    number: int
    kind: str
    message: str


ToWorker = Load | Begin | Cancel
FromWorker = Loaded | LoadFailed | Piece | Progress | Returned | Raised
