"""What a kernel's processes are, and whether any is left."""

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
#: In the command line of every zygote and, as they are its forks, of every guest.
MARK = b"cellblock.guest.zygote"


_STATE = re.compile(rb"^State:\s+(\S)", re.MULTILINE)
_PARENT = re.compile(rb"^PPid:\s+(\d+)$", re.MULTILINE)


def adopt_orphans() -> None:
    """Become the parent of whatever a kernel leaves behind (prctl(2))."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def parents(*, zombies: bool = False) -> dict[int, int]:
    """Return the parent of every process that lives, or of every one that nobody waited for."""
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
    """Return what a process calls itself, or nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return ""


def told(pid: int, file: str) -> bytes:
    """Return a file of a process's in proc(5): nothing when it is gone, or is not to be read."""
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:
        return b""


def threads(pid: int) -> int:
    """Return how many threads a process has; none when it is gone."""
    try:
        return len(os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208 - a count is enough
    except OSError:
        return 0


def orphans() -> list[int]:
    """Return the zygotes and guests whose host is gone: they are our children now."""
    return [p for p, parent in parents().items() if parent == os.getpid() and _marked(p)]


def _marked(pid: int) -> bool:
    try:
        return MARK in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def gone(pids: list[int], seconds: float = 5.0) -> list[int]:
    """Wait until none of ``pids`` and no orphan lives; return those that still do."""
    deadline = time.monotonic() + seconds
    while left := sorted({*pids} & {*parents()} | {*orphans()}):
        if time.monotonic() > deadline:
            return left
        time.sleep(0.01)
    return []


def end(pids: list[int]) -> None:
    """Kill what a failed test left."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def proportional_memory(pids: list[int]) -> int:
    """Return the proportional set size of ``pids`` together, in KiB."""
    return sum(memory(pid, "Pss") for pid in pids)


def until(true: Callable[[], Any], seconds: float = 15.0) -> Any:
    """Return what ``true`` returns once that is true; raises AssertionError when it takes longer."""
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def memory(pid: int, field: str) -> int:
    """Return a field of a process's ``smaps_rollup`` (proc(5)), in KiB."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(rf"^{field}:\s+(\d+)", text, re.MULTILINE).group(1))


def peak_memory(pid: int) -> int:
    """Return the most that was ever resident of one process, in bytes (VmHWM, proc(5))."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^VmHWM:\s+(\d+)", status, re.MULTILINE).group(1)) << 10


def works(pid: int) -> bool:
    """Return whether a process has, or wants, the processor or a disk (proc(5), status)."""
    try:
        return _STATE.search(Path(f"/proc/{pid}/status").read_bytes())[1] in {b"R", b"D"}
    except OSError:
        return False


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process's threads so far (proc(5), stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
