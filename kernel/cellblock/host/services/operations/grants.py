"""What crosses between the host and the worker of operations: light, for each worker imports it."""

from __future__ import annotations

from typing import Any

from msgspec import field

from cellblock.policy.credentials import Credential
from cellblock.wire.messages import Struct


class OperationGrants(Struct, frozen=True, kw_only=True):
    """What operations may touch; it crosses to the worker.

    ``tables`` are the policy's own, as plain data: ``policy.operations.Operations`` reads them.
    Relative paths are relative to ``project``. ``denied`` are canonical paths that are neither
    read nor written, and patterns of names that are not beneath a root. ``packages`` is the folder
    that packages are kept in. ``credentials`` say who is sent which key, and where that is read: no
    key itself crosses.
    """

    project: str
    denied: tuple[str, ...] = ()
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    packages: str = ""
    credentials: dict[str, Credential] = field(default_factory=dict)


class OperationError(Exception):
    """An operation was refused or failed. The cell sees ``kind`` as the error's type.

    It reaches the cell as it stands, so its message holds nothing of this machine.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message
