"""What confinement raises."""

from __future__ import annotations

import os


class ConfineError(Exception):
    """A required lock could not be applied; the guest must end without running anything.

    ``errno`` is 0 where no system call failed, e.g. when a thread exists already.
    """

    def __init__(self, lock: str, errno: int, detail: str) -> None:
        self.lock, self.errno, self.detail = lock, errno, detail
        super().__init__(f"{lock}: {self.why}")

    @property
    def why(self) -> str:
        """What went wrong, without the lock's name."""
        return f"{self.detail}: {os.strerror(self.errno)}" if self.errno else self.detail


class LockFailed(Exception):  # noqa: N818 - not shown; confine() turns it into a report line
    """One lock could not be applied here. ``confine`` decides whether that is fatal."""

    def __init__(self, detail: str, errno: int = 0) -> None:
        self.detail, self.errno = detail, errno
        super().__init__(detail)


def fatal(lock: str, error: OSError | ValueError | LockFailed) -> ConfineError:
    """Return what ends a guest whose ``lock`` came to ``error``."""
    if isinstance(error, OSError):
        return ConfineError(lock, error.errno or 0, "refused by the OS kernel")
    return ConfineError(lock, getattr(error, "errno", 0), str(error))
