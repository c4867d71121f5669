"""What a gate is made of: conditions on a call's arguments, as far as registers hold them.

Where the OS kernel takes an int, only the low 32 bits count, and only they are compared;
pointers are compared whole.
"""

from __future__ import annotations

import errno

import msgspec


class In(msgspec.Struct, frozen=True):
    """The argument is one of these values."""

    arg: int
    values: tuple[int, ...]


class NotIn(msgspec.Struct, frozen=True):
    """The argument is none of these values."""

    arg: int
    values: tuple[int, ...]


class Masked(msgspec.Struct, frozen=True):
    """The argument's bits under ``mask`` are ``value``."""

    arg: int
    mask: int
    value: int


class MaskedIn(msgspec.Struct, frozen=True):
    """The argument's bits under ``mask`` are one of ``values``."""

    arg: int
    mask: int
    values: tuple[int, ...]


class Null(msgspec.Struct, frozen=True):
    """The argument is a null pointer (all 64 bits)."""

    arg: int


class Own(msgspec.Struct, frozen=True):
    """The argument is the guest's process id, or one of ``others`` (0 means self)."""

    arg: int
    others: tuple[int, ...] = ()


Condition = In | NotIn | Masked | MaskedIn | Null | Own
Alternative = tuple[Condition, ...]


class Gate(msgspec.Struct, frozen=True):
    """When a call passes; else it fails with ``errno``.

    Calls that are ``void`` succeed, and do nothing.
    """

    name: str
    alternatives: tuple[Alternative, ...]
    why: str
    errno: int = errno.EPERM
    void: tuple[Alternative, ...] = ()


class Grants(msgspec.Struct, frozen=True):
    """What opens or shuts gates.

    ``relayed`` says that sockets may be made, and are connected by the host alone; ``scoped`` that
    Landlock confines signals (ABI 6), ``truncate`` that it decides on truncation (ABI 3), ``gated``
    that the zygote decides on starts and signals (``gate``), ``zygote`` that it is the zygote's own
    filter, under which its guests take their locks, ``removing`` that it removes what they leave.
    """

    network: bool = False
    relayed: bool = False
    subprocess: bool = False
    scoped: bool = False
    truncate: bool = False
    gated: bool = False
    zygote: bool = False
    removing: bool = False
