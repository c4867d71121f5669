"""What a cell did that running it again would do a second time, or otherwise.

A killed session is brought back by a copy and the cells since, if none of those did anything of the
kind (``analysis.dataflow``, ADR 0148). A cell can hide what it does, and then spoils its own
session.
"""

from __future__ import annotations

import asyncio
import functools
import os
import random
import resource
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

from cellblock.analysis.findings import word_set
from cellblock.guest.audit_exempt import is_exempt

if TYPE_CHECKING:
    from collections.abc import Callable

#: Of open(2): the file may be other than before.
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: Audit events of changes to files, of processes and of the network.
_EVENTS: Final = word_set("""
    os.chmod os.chown os.exec os.fork os.forkpty os.kill os.killpg os.link os.mkdir os.posix_spawn
    os.remove os.removexattr os.rename os.rmdir os.setxattr os.spawn os.symlink os.system
    os.truncate os.utime pty.spawn socket.bind socket.connect socket.getaddrinfo
    socket.gethostbyname socket.sendto sqlite3.connect subprocess.Popen
""")
#: Threads of ours, which start again by themselves.
OWN_THREADS: Final = "cellblock-"


class Effects:
    """Whether there were any in this process since ``begin``."""

    def __init__(self) -> None:
        self.any = False
        self._written = 0

    def watch(self) -> None:
        """See them from now on, in this process and its forks: there is no way back."""
        events, writes = _EVENTS, _WRITES

        def hook(event: str, args: tuple[Any, ...]) -> None:
            if event == "open":
                if type(args[2]) is int and args[2] & writes and not is_exempt():
                    self.any = True
            elif event in events and not is_exempt():
                self.any = True

        sys.addaudithook(hook)
        os.urandom = self._noting(os.urandom)
        vars(random)["_urandom"] = os.urandom  # SystemRandom's

    def _noting(self, function: Callable[..., Any]) -> Any:
        @functools.wraps(function)
        def noted(*args: Any) -> Any:
            self.any = True
            return function(*args)

        return noted

    def begin(self) -> None:
        """Begin to note those of a cell."""
        self.any, self._written = False, _written()

    def repeatable(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return whether there were none, and nothing goes on beside the cells."""
        goes_on = cells_threads() or (getattr(loop, "used", False) and asyncio.all_tasks(loop))
        return not (self.any or goes_on or _written() != self._written)


#: A process has one audit hook of the kind.
effects: Final = Effects()


def cells_threads() -> list[threading.Thread]:
    """Return the cells' threads: a copy has none of them."""
    main = threading.main_thread()
    # Not `enumerate`: a thread that ended for want of memory may have kept its lock.
    active = list(vars(threading)["_active"].values())
    return [t for t in active if t is not main and not str(t.name).startswith(OWN_THREADS)]


def _written() -> int:
    """Return the blocks that this process has had written to disk so far (getrusage(2))."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_oublock
