"""What a session and its relay say to each other, over a socket of their own."""

from __future__ import annotations

from typing import Literal

from cellblock.wire.messages import Struct


class Begin(Struct, tag="begin", frozen=True, kw_only=True):
    """First: the policy's entries."""

    entries: tuple[str, ...]


class Admit(Struct, tag="admit", frozen=True, kw_only=True):
    """Serve a guest: the relay's end of its socket travels with this frame (SCM_RIGHTS)."""

    number: int


class Judged(Struct, tag="judged", frozen=True, kw_only=True):
    """A guest asked for a connection, or was refused a name (port 0); told before it is answered.

    ``names`` are the listed ones that led there; ``host`` is a guest's own word if it is refused.
    """

    verdict: Literal["reached", "refused"]
    host: str
    port: int = 0
    names: tuple[str, ...] = ()


class Breach(Struct, tag="breach", frozen=True, kw_only=True):
    """A guest said what is no request, or does not read; it is not served any more."""

    number: int
    detail: str


ToRelay = Begin | Admit
FromRelay = Judged | Breach
