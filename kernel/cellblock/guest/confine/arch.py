"""Which system call table this machine uses."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Final

import msgspec

#: Architectures there is a table for, as ``uname -m`` spells them.
KNOWN: Final = ("aarch64", "x86_64")


class Arch(msgspec.Struct, frozen=True):
    """An architecture as the filter sees it."""

    name: str
    audit: int
    foreign_bit: int
    numbers: dict[str, int]


def named(name: str) -> Arch:
    """Return the architecture called ``name``, one of ``KNOWN``; only its table is imported."""
    table = import_module(f"cellblock.guest.confine.syscalls_{name}")
    return Arch(name, table.AUDIT_ARCH, table.FOREIGN_BIT, table.NUMBERS)


def current() -> Arch | None:
    """Return this machine's architecture, or None where no filter can be built for it."""
    machine = os.uname().machine
    return named(machine) if machine in KNOWN else None
