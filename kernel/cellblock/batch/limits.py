"""What one file may take, and what is said of one that took more."""

from __future__ import annotations

import signal
from typing import Final

import msgspec

#: Bytes of a notebook with its outputs, and of a script.
LARGEST: Final = 64 << 20
#: How a process ends that says itself why.
OUT_OF_MEMORY: Final = 77


class Limits(msgspec.Struct, frozen=True):
    """For the process that reads a file, the interpreter's own share among them.

    Seconds of processor time; seconds in all, on a machine however loaded; bytes of memory.
    """

    cpu_seconds: int = 10
    seconds: float = 120.0
    memory: int = 1 << 30

    def why(self, code: int, *, overdue: bool) -> str:
        """Return why a process that ended with ``code`` gave no verdict on its file."""
        if overdue:
            return f"took longer than {self.seconds:g} s"
        if code == -signal.SIGXCPU:
            return f"took more than {self.cpu_seconds} s of processor time"
        if code == OUT_OF_MEMORY:
            return f"takes more than {self.memory >> 20} MiB of memory to read"
        if code < 0:
            return f"ended the process that read it ({signal.Signals(-code).name})"
        return f"ended the process that read it (exit status {code})"
