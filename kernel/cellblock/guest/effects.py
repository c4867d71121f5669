"""What a cell did or asked that running it again would do a second time, or find otherwise.

A killed session is brought back by a copy and the cells since, if none of those did anything of the
kind (``analysis.dataflow``, ADR 0148). A cell can hide what it does, and then spoils its own
session.
"""

from __future__ import annotations

import _thread
import asyncio
import fcntl
import functools
import os
import random
import resource
import stat
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

from cellblock.analysis.findings import word_set
from cellblock.guest.audit_exempt import is_exempt, run_exempt
from cellblock.guest.audit_hook import roots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Of open(2): the file may be other than before.
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: Audit events of changes to files, of processes and of the network.
_EVENTS: Final = word_set("""
    os.chmod os.chown os.exec os.kill os.killpg os.link os.mkdir os.posix_spawn os.remove
    os.removexattr os.rename os.rmdir os.setxattr os.spawn os.symlink os.system os.truncate
    os.utime pty.spawn socket.bind socket.connect socket.getaddrinfo
    socket.gethostbyname socket.sendto sqlite3.connect subprocess.Popen
""")
#: Of what is read: the cell that is killed may have changed it.
_LOOKS: Final = word_set("os.listdir os.scandir")
#: Of what goes on beside the cells, or is shared with copies, from then on; and a library whose
#: threads no copy has, and which waits for them.
_LASTING: Final = word_set("_thread.start_joinable_thread mmap.__new__ os.fork os.forkpty")
_THREADED: Final = "polars"
#: Threads of ours, which start again by themselves.
OWN_THREADS: Final = "cellblock-"
#: The lowest descriptor that a cell can have, and unused ones in a row that are the end.
FIRST_FD: Final = 4
_GAP: Final = 16


class Effects:
    """Whether there were any in this process since ``begin``."""

    def __init__(self) -> None:
        self.any = False
        #: A cell has started what no copy has as it was: no cell is run again any more.
        self.lasting = False
        self._written = 0

    def watch(self) -> None:
        """See them from now on, in this process and its forks: there is no way back."""
        events, writes, looks, lasting = _EVENTS, _WRITES, _LOOKS, _LASTING
        installed = roots()

        def is_installed(path: object) -> bool:
            return type(path) is str and f"{path}/".startswith(installed)

        def hook(event: str, args: tuple[Any, ...]) -> None:
            if event == "open":
                written = type(args[2]) is int and args[2] & writes
                if (written or not is_installed(args[0])) and not is_exempt():
                    self.any = True
            elif event in events or event in lasting:
                if not is_exempt():
                    self.any = True
                    self.lasting = self.lasting or event in lasting
            elif event in looks and not is_installed(args[0]):
                self.any = True

        sys.addaudithook(hook)
        os.urandom = vars(random)["_urandom"] = self._noting(os.urandom)  # SystemRandom's, too
        # Without an event before Python 3.13.
        start = self._noting(_thread.start_new_thread, lasting=True)
        _thread.start_new_thread = vars(threading)["_start_new_thread"] = start

    def _noting(self, function: Callable[..., Any], *, lasting: bool = False) -> Any:
        @functools.wraps(function)
        def noted(*args: Any, **options: Any) -> Any:
            if not is_exempt():
                self.any = True
                self.lasting = self.lasting or lasting
            return function(*args, **options)

        return noted

    def begin(self) -> None:
        """Begin to note those of a cell."""
        self.any, self._written = has_open_files(), _written()

    def repeatable(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return whether there were none, and nothing goes on beside the cells."""
        tasks = getattr(loop, "used", False) and asyncio.all_tasks(loop)
        if cells_threads() or tasks or _THREADED in sys.modules:
            self.lasting = True
        none = not (self.any or self.lasting) and _written() == self._written
        return none and not has_open_files()


#: A process has one audit hook of the kind.
effects: Final = Effects()


def descriptors(most: int, gap: int = _GAP) -> Iterator[tuple[int, os.stat_result]]:
    """Yield open descriptors below ``most``; ``gap`` unused ones in a row are the end."""
    unused = 0
    for fd in range(FIRST_FD, most):
        try:
            status = os.fstat(fd)
        except OSError:
            unused += 1
            if unused >= gap:
                return
            continue
        unused = 0
        yield fd, status


def has_open_files() -> bool:
    """Return whether a cell has a file open that it can write to without an event."""
    files = (fd for fd, status in descriptors(256) if stat.S_ISREG(status.st_mode))
    return any(run_exempt(fcntl.fcntl, fd, fcntl.F_GETFL) & os.O_ACCMODE for fd in files)


def cells_threads() -> list[threading.Thread]:
    """Return the cells' threads: a copy has none of them."""
    main = threading.main_thread()
    # Not `enumerate`: a thread that ended for want of memory may have kept its lock.
    active = list(vars(threading)["_active"].values())
    return [t for t in active if t is not main and not str(t.name).startswith(OWN_THREADS)]


def _written() -> int:
    """Return the blocks that this process has had written to disk so far (getrusage(2))."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_oublock
