"""Snapshots: a copy of the guest that waits, so that a killed cell costs nothing.

The copy is made between two requests, on the main thread, and comes to a stop in the middle of
``take``, waiting on a socket of its own. When it is told to go on, ``take`` returns there too: it
is the guest then, with everything the guest had but what a fork can't copy.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

from cellblock.guest import files, forking
from cellblock.guest.confine import libc, process
from cellblock.guest.text import encodable
from cellblock.wire import messages

if TYPE_CHECKING:
    from cellblock.guest import pools
    from cellblock.guest.channel import Channel
    from cellblock.guest.loop import Driver
    from cellblock.guest.network import Network
    from cellblock.guest.streams import Outlet

_PR_SET_PDEATHSIG = 1
#: Taken before cells can put something else in its place.
_seed_global = random.seed
_DESCRIPTORS = 3
#: Threads of ours, which start again by themselves.
_OWN_THREADS = "cellblock-"
#: Names of threads that are told, and characters of each.
_MOST_NAMES, _LONGEST_NAME = 20, 100


class Snapshots:
    """Makes copies of this guest, and what a copy does when it takes over."""

    def __init__(  # noqa: PLR0913, PLR0917 - what of a guest is not copied by a fork
        self,
        channel: Channel,
        outlet: Outlet,
        driver: Driver,
        zygote: int,
        openmp: pools.OpenMP | None,
        network: Network | None = None,
        *,
        connects: bool = False,
    ) -> None:
        self._channel, self._outlet, self._driver = channel, outlet, driver
        self._network, self._connects = network, connects
        #: How many connections a copy has let go of.
        self._connections = 0
        #: None where no library can have one.
        self._openmp = openmp
        #: The pid of the zygote, whose death is to be ours.
        self._zygote = zygote
        self._copies: list[int] = []
        self._files: tuple[files.Kept, ...] = ()
        self._orphaned = False
        self._lost: list[str] = []

    def take(self, request: messages.Snapshot) -> messages.Resume | None:
        """Make a copy. Returns None in the original, and in the copy what it is to go on with."""
        fds, threads = self._channel.take_descriptors(), list[str]()
        self.settle()
        try:
            self._outlet.flush()
            self._files = files.look(self._files)
            threads = _threads()
            if self._openmp is not None:
                self._openmp.let_go()
            pid = self._fork(fds)
        except (OSError, MemoryError) as exc:
            self._channel.send(messages.NotStanding(id=request.id, errno=_number(exc)))
            pid = -1
        if pid:
            self._part(pid, fds)
            return None
        return self._stand(request, fds, threads)

    def _fork(self, fds: list[int]) -> int:
        """Fork with nothing half said. Raises OSError, MemoryError."""
        if len(fds) != _DESCRIPTORS:
            raise OSError(errno.EMFILE, "")
        with self._outlet.still(), self._channel.still():
            return forking.fork()

    def _part(self, pid: int, fds: list[int]) -> None:
        """Let go of what is the child's: while it is open here, its end can't be seen."""
        self._copies += [pid] if pid > 0 else []
        for fd in fds:
            os.close(fd)

    def _stand(
        self, request: messages.Snapshot, fds: list[int], threads: list[str]
    ) -> messages.Resume:
        """Wait, as the copy, until the guest is gone, and make a twin when the host asks."""
        try:
            self._copies, self._orphaned, self._lost = [], True, threads
            self._files = files.still_open(self._files)
            self._connections = _let_go() if self._connects else 0
            process.call_itself("snapshot")
            message = self._wait(request, fds)
            while isinstance(message, messages.Snapshot):
                message = self._double(message)
        except BaseException:  # noqa: BLE001 - whatever it is, no code of a cell's runs on in here
            os._exit(0)
        if not isinstance(message, messages.Resume):
            os._exit(1)
        return message

    def _wait(self, request: messages.Snapshot, fds: list[int]) -> messages.ToGuest:
        """Stand on a channel of its own; return what the host says."""
        for target, fd in zip((self._channel.fileno(), 1, 2), fds, strict=True):
            os.dup2(fd, target, inheritable=target != self._channel.fileno())
            os.close(fd)
        # The host stops it. Whoever could end it is gone: it goes on, and sees that by itself.
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)
        self._channel.renew()
        self._outlet.renew()
        self._channel.send(messages.Standing(id=request.id, connections=self._connections))
        return self._channel.recv()

    def _double(self, request: messages.Snapshot) -> messages.ToGuest:
        """Make a twin of this copy; return what either of them is told next.

        The host, which stops this one, is told when nothing of the twin's is open in here.
        """
        fds = self._channel.take_descriptors()
        self.settle()
        try:
            pid = self._fork(fds)
        except (OSError, MemoryError) as exc:
            self._part(-1, fds)
            self._channel.send(messages.NotStanding(id=request.id, errno=_number(exc)))
            return self._channel.recv()
        if pid == 0:
            self._copies, self._orphaned = [], True
            return self._wait(request, fds)
        self._part(pid, fds)
        self._channel.send(messages.Standing(id=request.id))
        return self._channel.recv()

    def go_on(self, resume: messages.Resume) -> messages.Resumed:
        """Make what a fork can't copy anew; return what can't be had again."""
        self.settle()
        process.call_itself("guest")
        _reseed(resume.seed)
        tasks = self._driver.resume()
        changed = files.restore(self._files)
        if self._network is not None:
            self._network.renew(self._channel.take_descriptors())
            if resume.plan is not None and not resume.plan.relayed:
                self._network.end()
        return messages.Resumed(
            threads=self._lost, tasks=tasks, files=changed, connections=self._connections
        )

    def settle(self) -> None:
        """Do what could not be done before: bury dropped copies, die with the zygote."""
        for pid in tuple(self._copies):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG) == (0, 0):
                    continue
            self._copies.remove(pid)
        # While the killed guest is our parent, its death would be ours.
        if self._orphaned and os.getppid() == self._zygote:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            self._orphaned = False


def _let_go() -> int:
    from cellblock.guest import connections  # noqa: PLC0415 - most guests have no network

    return connections.let_go()


def _number(exc: OSError | MemoryError) -> int:
    """Return the error's number as errno(3) has them."""
    number = (exc.errno or 0) if isinstance(exc, OSError) else errno.ENOMEM
    return number if number in errno.errorcode else errno.EIO


def _threads() -> list[str]:
    """Return the names of the cells' threads: a copy has none of them."""
    main = threading.main_thread()
    # Not `enumerate`: a thread that ended for want of memory may have kept its lock.
    active = list(vars(threading)["_active"].values())
    names = [str(t.name) for t in active if t is not main]
    told = [name for name in names if not name.startswith(_OWN_THREADS)]
    return [encodable(name)[:_LONGEST_NAME] for name in told[:_MOST_NAMES]]


def _reseed(seed: bytes) -> None:
    """Give the global generators states of their own, or two guests would draw the same secrets."""
    _seed_global(seed)
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is not None:
        with contextlib.suppress(Exception):  # a cell may have put anything there
            words = [int.from_bytes(seed[i : i + 4]) for i in range(0, len(seed), 4)]
            numpy.seed(words)
