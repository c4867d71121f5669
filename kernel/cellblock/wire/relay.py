"""Packets between a guest and the relay, over a socket of their own.

A request is answered at once, in order, with the same ``nonce``, by which a guest that was
interrupted drops the answer to what it asked before. What is asked for comes as a descriptor
(SCM_RIGHTS): for ``Connect`` a socket whose connection is under way, for ``Resolve`` the end of a
pipe, from which ``Found`` is read when it is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from cellblock.wire.frames import Decoder
from cellblock.wire.messages import Message, Struct

if TYPE_CHECKING:
    from collections.abc import Callable

#: Bytes of the largest packet, and of what comes through a pipe.
MOST: int = 2_048
MOST_FOUND: int = 4_096
NONCE: int = 8

Nonce = Annotated[bytes, msgspec.Meta(min_length=NONCE, max_length=NONCE)]
Host = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
Port = Annotated[int, msgspec.Meta(ge=1, le=65_535)]
Why = Annotated[str, msgspec.Meta(max_length=500)]


class Resolve(Message, frozen=True, kw_only=True):
    """Look up a listed name."""

    nonce: Nonce
    name: Host


class Connect(Message, frozen=True, kw_only=True):
    """Connect to a listed address, or to one that a listed name was found at."""

    nonce: Nonce
    address: Host
    port: Port


class Answer(Struct, frozen=True, kw_only=True):
    """A descriptor comes along, or ``errno`` and ``why`` say that none does."""

    nonce: Nonce
    errno: Annotated[int, msgspec.Meta(ge=0, le=4_095)] = 0
    why: Why = ""


class Found(Struct, frozen=True, kw_only=True):
    """Where a name is, or ``error`` (EAI_*, getaddrinfo(3)) and ``why`` say that it is nowhere."""

    addresses: Annotated[tuple[Host, ...], msgspec.Meta(max_length=64)] = ()
    error: int = 0
    why: Why = ""


encode: Callable[[msgspec.Struct], bytes] = msgspec.msgpack.Encoder().encode
#: What a guest asks for, what the relay answers, where a name is. Raise WireError.
request = Decoder[Resolve | Connect](Resolve | Connect)
answer = Decoder[Answer](Answer)
found = Decoder[Found](Found)
