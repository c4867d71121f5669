"""How processes share their private pages: what each has of a page that several have.

The OS kernel knows it (proc(5), smaps_rollup, Linux 5.4). It tells that of a process that can't be
traced to root, and to who owns the user namespace of the process. It walks the process's page
tables for it, 5 to 10 ms a GiB: ask in a thread (``reading``).
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
    """Of the private pages of a process, in memory or swapped out."""

    #: Bytes, each page divided by the processes that have it.
    share: int
    #: Bytes that no other process has: at least so many.
    alone: int
    #: Bytes of all of them.
    whole: int

    @classmethod
    def of(cls, pid: int) -> Shares | None:
        """Read them; None where this user may not. A process that is gone has nothing."""
        text = _read(pid)
        if text is None:
            return None
        found = {name: int(kib) << 10 for name, kib in _FIELDS.findall(text)}
        if text and b"Pss_Anon" not in found:  # Linux before 5.4
            return None
        others = found.get(b"Pss_File", 0) + found.get(b"Pss_Shmem", 0)
        alone = max(0, found.get(b"Private_Dirty", 0) - others)
        share = found.get(b"Pss_Anon", 0) + found.get(b"SwapPss", 0)
        return cls(share, alone, found.get(b"Anonymous", 0) + found.get(b"Swap", 0))


def read(pids: Iterable[int]) -> dict[int, Shares] | None:
    """Return the shares of processes, without those that are gone; None where that can't be asked.

    One that ends meanwhile is left out: those that are read after it have its part of the pages.
    """
    found = dict[int, Shares]()
    for pid in pids:
        if (shares := Shares.of(pid)) is None:
            return None
        found[pid] = shares
    return {pid: shares for pid, shares in found.items() if private_bytes(pid)}


def have_one_memory(pid: int, other: int) -> bool:
    """Return whether two processes have the same memory, as by vfork(2) until a program begins.

    False where this user may not ask (kcmp(2)). It may wait, as ``Shares.of`` does.
    """
    number = _KCMP.get(platform.machine())
    if number is None or _syscall()(number, pid, other, _KCMP_VM, 0, 0):
        return False
    # First threads that have ended have none, and so the same.
    return b"\nVmRSS:" in read_proc(f"{pid}/status")


@lru_cache(maxsize=1)
def _syscall() -> Callable[..., int]:
    import ctypes  # noqa: PLC0415 - slow, and few sessions have several processes

    call: Callable[..., int] = ctypes.CDLL(None).syscall
    return call


def beyond(one: Shares, others: Collection[Shares]) -> int:
    """Return at least how many bytes ``others`` have that ``one`` has not: each page counts once.

    Of a page that only some of the others have, their shares make the whole page. Of a page that
    ``one`` has, the shares of all make no more than that page, and ``whole`` has it. The answer is
    too low if processes that are not among these have the pages, too, such as the guest where
    ``one`` is its newest copy; pages that a single process has are not subject to that.
    """
    together = one.share + sum(other.share for other in others)
    return max(sum(other.alone for other in others), together - one.whole)


def _read(pid: int) -> bytes | None:
    """Return the smaps_rollup of a process: nothing when it is gone, None if it can't be read.

    The first thread has no memory any more once it has ended, though others go on. The id of any
    thread shows what the process has.
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
            if Path(f"/proc/{task}").exists():  # Linux has no such file
                return None
        except OSError:
            return None
    return b""


#: The number of kcmp(2), and what it compares (<linux/kcmp.h>).
_KCMP: Final = {"x86_64": 312, "aarch64": 272}
_KCMP_VM: Final = 1
_FIELDS: Final = re.compile(
    rb"^(Pss_Anon|Pss_File|Pss_Shmem|Private_Dirty|Anonymous|Swap|SwapPss):\s+(\d+) kB$",
    re.MULTILINE,
)
