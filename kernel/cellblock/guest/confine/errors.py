"""What confinement raises."""

from __future__ import annotations

import os


class ConfineError(Exception):
    """A required lock could not be applied; the guest must end without running anything.

    ``errno`` is 0 where no system call failed, e.g. when a thread exists already.
    """

    def __init__(self, lock: str, errno: int, detail: str) -> None:
        self.lock, self.errno, self.detail = lock, errno, detail
        why = f": {os.strerror(errno)}" if errno else ""
        super().__init__(f"{lock}: {detail}{why}")


class LockFailed(Exception):  # noqa: N818 - not shown; confine() turns it into a report line
    """One lock could not be applied here. ``confine`` decides whether that is fatal."""

    def __init__(self, detail: str, errno: int = 0) -> None:
        self.detail, self.errno = detail, errno
        super().__init__(detail)
