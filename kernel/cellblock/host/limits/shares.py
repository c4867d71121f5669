"""How processes share their private pages: the share that each has of a page which several have.

The OS kernel tells that (proc(5), smaps_rollup, Linux 5.4). For a process that can't be traced it
tells only root, and the owner of the process's user namespace. It walks the process's page tables,
which takes 5 to 10 ms for each GiB, so ask in a thread (``reading``).
"""

from __future__ import annotations

import os
import platform
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from cellblock.host.limits.processes import MAX_PROCESSES, private_bytes, read_proc

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable


class Shares(NamedTuple):
    """The bytes of a process's private pages, in memory or swapped out."""

    #: The process's share: a page that n processes have counts as an n-th.
    share: int
    #: Bytes that no other process has, at least.
    alone: int
    #: Bytes of all pages, each counted fully.
    whole: int

    @classmethod
    def of(cls, pid: int) -> Shares | None:
        """Read the shares of a process; None if this user may not. A process that is gone has 0."""
        text = _read_smaps_rollup(pid)
        if text is None:
            return None
        fields = {name: int(kib) << 10 for name, kib in _FIELDS.findall(text)}
        if text and b"Pss_Anon" not in fields:  # Linux before 5.4
            return None
        shared_file_bytes = fields.get(b"Pss_File", 0) + fields.get(b"Pss_Shmem", 0)
        alone = max(0, fields.get(b"Private_Dirty", 0) - shared_file_bytes)
        share = fields.get(b"Pss_Anon", 0) + fields.get(b"SwapPss", 0)
        return cls(share, alone, fields.get(b"Anonymous", 0) + fields.get(b"Swap", 0))


def read(pids: Iterable[int]) -> dict[int, Shares] | None:
    """Return the shares of processes by pid, without those that are gone.

    A process that ends meanwhile is left out, because the shares of those that are read after it
    include its part of the pages. Return None if this user may not ask.
    """
    shares_by_pid = dict[int, Shares]()
    for pid in pids:
        if (shares := Shares.of(pid)) is None:
            return None
        shares_by_pid[pid] = shares
    return {pid: shares for pid, shares in shares_by_pid.items() if private_bytes(pid)}


def have_one_memory(pid: int, other_pid: int) -> bool:
    """Return whether two processes have the very same memory, as after vfork(2).

    Return False if this user may not ask (kcmp(2)). This may wait for a process, like
    ``Shares.of``.
    """
    number = _KCMP.get(platform.machine())
    if number is None or _syscall()(number, pid, other_pid, _KCMP_VM, 0, 0):
        return False
    # Processes whose first threads have ended seem to have the same memory, namely none.
    return b"\nVmRSS:" in read_proc(f"{pid}/status")


@lru_cache(maxsize=1)
def _syscall() -> Callable[..., int]:
    import ctypes  # noqa: PLC0415 - slow, and few sessions have several processes

    call: Callable[..., int] = ctypes.CDLL(None).syscall
    return call


def beyond(subject: Shares, processes: Collection[Shares]) -> int:
    """Return how many bytes ``processes`` have that ``subject`` does not have, at least.

    Each page counts once. If only some of the others have a page, their shares add up to the whole
    page. If ``subject`` has it, too, all shares add up to no more than that page, which
    ``subject.whole`` contains. The result is too low if processes beside these have pages as well,
    such as the guest if ``subject`` is its newest copy. Pages that a single process has are counted
    in any case.
    """
    together = subject.share + sum(process.share for process in processes)
    return max(sum(process.alone for process in processes), together - subject.whole)


def _read_smaps_rollup(pid: int) -> bytes | None:
    """Return the smaps_rollup of a process: empty if the process is gone, None if not readable.

    The first thread shows no memory after it has ended, even if others go on. Any other thread's id
    shows the memory of the process.
    """
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return b""
    for task in tasks[:MAX_PROCESSES]:
        try:
            return Path(f"/proc/{task}/smaps_rollup").read_bytes()
        except ProcessLookupError:  # the thread has ended
            continue
        except FileNotFoundError:
            if Path(f"/proc/{task}").exists():  # this Linux has no smaps_rollup
                return None
        except OSError:
            return None
    return b""


#: The number of the system call kcmp(2), and its KCMP_VM (<linux/kcmp.h>).
_KCMP: Final = {"x86_64": 312, "aarch64": 272}
_KCMP_VM: Final = 1
_FIELDS: Final = re.compile(
    rb"^(Pss_Anon|Pss_File|Pss_Shmem|Private_Dirty|Anonymous|Swap|SwapPss):\s+(\d+) kB$",
    re.MULTILINE,
)
