"""How processes end: killing what is left of a guest, and saying what its exit status means."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any


def kill(pid: int, pidfd: int | None) -> None:
    """Kill a process, by its descriptor if there is one, which is closed; harmless when gone."""
    with contextlib.suppress(ProcessLookupError):
        if pidfd is None:
            os.kill(pid, signal.SIGKILL)
            return
        with os.fdopen(pidfd, "rb", buffering=0):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def empty(session: int) -> None:
    """Kill whatever is in a guest's session: with the zygote went who knew its descendants.

    No other session has its number while anything is in it (setsid(2)).
    """
    for entry in os.scandir("/proc") if session > 0 else ():
        with contextlib.suppress(ValueError, OSError):
            if os.getsid(int(entry.name)) == session:
                os.kill(int(entry.name), signal.SIGKILL)


def exit_reason(status: int) -> str:
    """Say what a status of wait(2) means."""
    if os.WIFSIGNALED(status):
        number: Any = os.WTERMSIG(status)
        if number in signal.valid_signals() and number < signal.SIGRTMIN:
            number = signal.Signals(number).name
        return f"it was ended by signal {number}"
    return f"it exited with status {os.waitstatus_to_exitcode(status)}"
