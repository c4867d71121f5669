"""The grants of operations, which the host sends to their worker, and the error that comes back.

Each worker imports this module, so it imports little.
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from cellblock.policy.credentials import Credential
from cellblock.wire.messages import Struct


class OperationGrants(Struct, frozen=True, kw_only=True):
    """What operations may touch.

    ``tables`` are the policy's sections as plain data: ``policy.operations.Operations`` reads them.
    Relative paths are relative to ``project``. ``denied`` are canonical paths that are neither
    read nor written, and patterns of names that are denied beneath a root. ``packages`` is the
    folder of installed packages. ``credentials`` say which hosts are sent which key, and where the
    worker reads it: the key itself is not sent to the worker.
    """

    project: str
    denied: tuple[str, ...] = ()
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    packages: str = ""
    credentials: dict[str, Credential] = field(default_factory=dict)


class OperationError(Exception):
    """An operation was refused or failed. The cell sees ``kind`` as the error's type.

    The cell gets the message unchanged, so it must reveal nothing of this machine.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
