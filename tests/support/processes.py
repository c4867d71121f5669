"""Finds and measures a kernel's processes in /proc, and waits until they have ended."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_PR_SET_CHILD_SUBREAPER = 36
#: Part of the command line of each zygote and so of each guest, which is its fork.
MARK = b"cellblock.guest.zygote"


_STATE = re.compile(rb"^State:\s+(\S)", re.MULTILINE)
_PARENT = re.compile(rb"^PPid:\s+(\d+)$", re.MULTILINE)


def adopt_orphans() -> None:
    """Become the parent of all processes that kernels leave behind (prctl(2))."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def parents(*, zombies: bool = False) -> dict[int, int]:
    """Return the parents of all living processes, or of all zombies, by pid."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "status").read_bytes()  # stat can make its reader wait
            except OSError:
                continue
            state, parent = _STATE.search(status)[1], _PARENT.search(status)[1]
            if (state in {b"Z", b"X"}) == zombies:
                found[int(entry.name)] = int(parent)
    return found


def tree(root: int) -> list[int]:
    """Return ``root`` and its descendants, parents first."""
    of = parents()
    out = [root] if root in of else []
    for pid in out:
        out += [child for child, parent in of.items() if parent == pid]
    return out


def name(pid: int) -> str:
    """Return a process's name; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return ""


def read_file(pid: int, file: str) -> bytes:
    """Return a file of a process in proc(5); empty if it has ended or the file can't be read."""
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:
        return b""


def threads(pid: int) -> int:
    """Return how many threads a process has; 0 if it has ended."""
    try:
        return len(os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208 - a count is enough
    except OSError:
        return 0


def orphans() -> list[int]:
    """Return zygotes and guests whose host has ended, so that they are children of this process."""
    return [p for p, parent in parents().items() if parent == os.getpid() and _marked(p)]


def _marked(pid: int) -> bool:
    try:
        return MARK in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def gone(pids: list[int], seconds: float = 5.0) -> list[int]:
    """Wait until all of ``pids`` and all orphans have ended; return those that have not."""
    deadline = time.monotonic() + seconds
    while left := sorted({*pids} & {*parents()} | {*orphans()}):
        if time.monotonic() > deadline:
            return left
        time.sleep(0.01)
    return []


def end(pids: list[int]) -> None:
    """Kill processes, such as those that a failed test left."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def proportional_memory(pids: list[int]) -> int:
    """Return the proportional set size of ``pids`` together, in KiB."""
    return sum(memory(pid, "Pss") for pid in pids)


def until(true: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Wait until ``true`` returns a true value, and return it. Raises AssertionError if late."""
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def settled(look: Callable[[], Any], seconds: float = 1.0) -> Any:
    """Return what ``look`` returns once it has returned the same for so long."""
    now, since = look(), time.monotonic()
    while time.monotonic() - since < seconds:
        time.sleep(0.05)
        if (last := look()) != now:
            now, since = last, time.monotonic()
    return now


def memory(pid: int, field: str) -> int:
    """Return a field of a process's ``smaps_rollup`` (proc(5)), in KiB."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(rf"^{field}:\s+(\d+)", text, re.MULTILINE).group(1))


def peak_memory(pid: int) -> int:
    """Return a process's peak of resident memory, in bytes (VmHWM, proc(5))."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^VmHWM:\s+(\d+)", status, re.MULTILINE).group(1)) << 10


def works(pid: int) -> bool:
    """Return whether a process runs, or waits for processor or disk (proc(5), status)."""
    try:
        return _STATE.search(Path(f"/proc/{pid}/status").read_bytes())[1] in {b"R", b"D"}
    except OSError:
        return False


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process's threads so far (proc(5), stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
