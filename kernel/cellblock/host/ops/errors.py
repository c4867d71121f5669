"""What an operation raises: told to the cell as it stands, so nothing of this machine is in it."""

from __future__ import annotations

from typing import Final

#: Failures that say nothing of what was asked for: another time it may be had.
TRANSIENT: Final = frozenset({"ConnectError", "OSError", "TimeoutError"})
#: What ``ops.write_file`` fails with before it has written anything.
UNWRITTEN: Final = frozenset(
    {
        "FileNotFoundError",
        "NotADirectoryError",
        "NotAFile",
        "NotGranted",
        "PermissionError",
        "TooLarge",
        "ValidationError",
        "ValueError",
    }
)


class OperationError(Exception):
    """An operation was refused or failed. ``kind`` is what the cell sees as the error's type."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message


def not_granted(message: str) -> OperationError:
    """Return the error for what the policy's section does not cover."""
    return OperationError("NotGranted", message)


def failed(path: str, error: OSError) -> OperationError:
    """Return the error for what the OS kernel said of ``path``, as the cell named that."""
    return OperationError(type(error).__name__, f"{path}: {error.strerror or 'it failed'}")
