"""The gate: calls of a guest that the zygote decides, one by one.

Some questions a filter can't answer, because the answer is not in the registers: how many
threads there are, whether a fork is the one that a snapshot is due, whether a signal's target
is the guest itself (a snapshot that took over has another process id than its filter knows).
Others have another answer once the policy has become narrower, and a filter is for good: where
there is a network, and where programs may be started, these calls are asked about as well.
For all of them the guest's first filter stops the call and tells the holder of its listener.

The holder is the zygote: trusted, idle, and gone only when the guest is. It sees registers,
never memory, so that nothing can change between its look and the call. Where no gate is set up
the main filter refuses the same calls by itself, and RLIMIT_NPROC counts tasks.

Source: seccomp_unotify(2), <linux/seccomp.h>.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from cellblock.guest.confine import seccomp
from cellblock.guest.confine.libc import LockFailed
from cellblock.guest.confine.seccomp import Label, Op
from cellblock.guest.confine.syscall_args import (
    CLONE_NEVER,
    CLONE_SHARED,
    CLONE_THREAD,
    HANDING_OVER,
    NOTIF_ADDFD,
    NOTIF_RECV,
    NOTIF_SEND,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cellblock.guest.confine.arch import Arch
    from cellblock.guest.confine.syscall_args import Grants


NEW_LISTENER: Final = 1 << 3
#: A call that was taken up is not interrupted and told again: a fork would be counted twice.
WAIT_KILLABLE: Final = 1 << 5
RET_USER_NOTIF: Final = 0x7FC00000
CONTINUE: Final = 1
#: What a listener is called among a process's descriptors (proc(5)).
_LISTENER: Final = "anon_inode:seccomp notify"
ADDFD_SETFD: Final = 1
CLOEXEC: Final = os.O_CLOEXEC
_ADDFD: Final = struct.Struct("=QIIII")
_NOTIF: Final = struct.Struct("=QIIiIQ6Q")
_RESPONSE: Final = struct.Struct("=QqiI")

#: Calls that make a task, and calls that signal one: told to the zygote.
STARTING: Final = ("clone", "fork", "vfork")
SIGNALLING: Final = ("kill", "tgkill")
#: What lays one more ruleset on its caller: the zygote's, when that is due, and no other.
LOCKING: Final = "landlock_restrict_self"
#: Told where the policy allows a network: what reaches somebody new. Data on what is connected
#: already are not: they go the way of the guest's own channel.
REACHING: Final = ("accept", "accept4", "bind", "connect", "listen", "sendmmsg", "socket")
#: Of these, an address, and the flags with which the listener is given away (``HANDING_OVER``).
SENDING_TO: Final = "sendto"
SENDING: Final = "sendmsg"
_ADDRESS, _FLAGS = 4, 2
#: Told where the policy allows programs.
EXECUTING: Final = "execve"
_NETWORKING: Final = frozenset({*REACHING, SENDING_TO, SENDING})
_TOLD: Final = (*STARTING, *SIGNALLING, LOCKING, EXECUTING, *REACHING, SENDING_TO, SENDING)
#: Seconds for which a start that was let through may not show in the count yet.
SETTLING: Final = 0.1
#: Of a task's status: its process, and how many threads that has.
_STATUS: Final = re.compile(rb"^Tgid:\s*(\d+)$.*^Threads:\s*(\d+)$", re.DOTALL | re.MULTILINE)
_READ: Final = 1 << 14


class Request(msgspec.Struct, frozen=True):
    """A stopped call: its id, the task that makes it, the call's name and arguments."""

    id: int
    task: int
    call: str
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Lock:
    """A ruleset that is due on one process: its descriptor, which is closed when it is laid.

    ``clear`` ends whatever else was started under the locks before, and may raise LockFailed;
    ``lower`` lowers the limits that no gate keeps, and may raise OSError; ``done`` is called just
    before the one thread goes on, which then is restricted.
    """

    pid: int
    ruleset: int
    clear: Callable[[], None]
    lower: Callable[[], None]
    done: Callable[[], None]


def build(arch: Arch, grants: Grants) -> seccomp.Program:
    """Compile the filter that stops the gate's calls; its slot takes the guest's process id."""
    return seccomp.assemble(list(_filter(arch, grants)))


def install(arch: Arch, pid: int, grants: Grants, hand_over: Callable[[int], None]) -> None:
    """Put this thread under the gate and give the listener away. Raises OSError, LockFailed.

    From here on the gate's calls wait for an answer; the descriptor is closed here, since
    whoever holds it decides.
    """
    listener = _load(arch, pid, grants)
    if os.readlink(f"/proc/self/fd/{listener}") != _LISTENER:
        raise LockFailed("no listener came of the gate's filter")
    try:
        hand_over(listener)
    finally:
        os.close(listener)


def _load(arch: Arch, pid: int, grants: Grants) -> int:
    program = build(arch, grants)
    try:
        return seccomp.load_filter(arch, program, pid, NEW_LISTENER | WAIT_KILLABLE)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    return seccomp.load_filter(arch, program, pid, NEW_LISTENER)  # before Linux 5.19


class Gate:
    """The zygote's end: poll ``fileno()`` and call ``answer()`` when it is readable.

    ``most_tasks`` bounds the guest's threads and processes together; None leaves them alone.
    ``processes`` is the policy's subprocess_execution, ``network`` whether there is one.
    """

    def __init__(
        self,
        listener: int,
        arch: Arch,
        *,
        most_tasks: int | None,
        processes: bool,
        network: bool = False,
    ) -> None:
        self._listener = listener
        self.hold_to(most_tasks=most_tasks, processes=processes, network=network)
        self._names = {arch.numbers.get(name, -1): name for name in _TOLD}
        self._audit = arch.audit
        self._lock: Lock | None = None
        self._forks_due: list[int | None] = []
        self._started: dict[int, float] = {}

    def fileno(self) -> int:
        """Return the listener's descriptor, for poll()."""
        return self._listener

    def close(self) -> None:
        """Let go: calls that are stopped, and all that come, fail with ENOSYS."""
        os.close(self._listener)

    def hold_to(self, *, most_tasks: int | None, processes: bool, network: bool) -> None:
        """Decide by these from now on."""
        self._most_tasks, self._processes, self._network = most_tasks, processes, network

    def lock(self, lock: Lock) -> None:
        """Have one more ruleset laid on a process, when it asks for that; nothing starts before."""
        self._withdraw_lock()
        self._lock = lock
        self._forks_due.clear()

    def _withdraw_lock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock.ruleset)

    def allow_fork(self, pid: int | None) -> None:
        """Let the next fork of ``pid`` through, or of whoever asks: a snapshot is due.

        No lock is due any more.
        """
        self._withdraw_lock()
        self._forks_due.append(pid)

    def withdraw_fork(self) -> None:
        """Take ``allow_fork`` back: no snapshot is wanted any more."""
        self._forks_due.clear()

    def answer(self) -> bool:
        """Decide one stopped call. Returns False when the guest is gone."""
        try:
            request = self._receive()
        except FileNotFoundError:  # its task was killed meanwhile
            return True
        except OSError:
            return False
        refusal = errno.EPERM if request is None else self.decide(request)
        if request is not None:
            self._send(request.id, refusal)
        return True

    def decide(self, request: Request) -> int:
        """Return 0 to let the call go on, or the errno it fails with."""
        try:
            return self._decide(request)
        except (OSError, LockFailed):  # its task is gone, or can't be looked at
            return errno.EPERM

    def _decide(self, request: Request) -> int:
        if request.call in _NETWORKING:
            return 0 if self._network else errno.EACCES
        if request.call == EXECUTING:
            return 0 if self._processes else errno.EPERM
        group, threads = _group(request.task)
        if request.call in STARTING:
            return self._start(request, group, threads)
        if request.call == LOCKING:
            may = self._lay(request, group, threads)
        else:
            may = self._may_signal(request.args[0], group)
        return 0 if may else errno.EPERM

    def _start(self, request: Request, group: int, threads: int) -> int:
        if not self._may_start(request, group):
            return errno.EPERM
        if self._most_tasks is not None and self._count(request.task, threads) >= self._most_tasks:
            return errno.EAGAIN
        self._started[request.task] = time.monotonic()
        return 0

    def _may_signal(self, target: int, sender: int) -> bool:
        return target == sender or (self._processes and target in descendants(sender))

    def _may_start(self, request: Request, group: int) -> bool:
        flags = request.args[0] if request.call == "clone" else 0
        if self._lock is not None:
            return False
        if flags & CLONE_THREAD or self._processes:
            return not flags & CLONE_NEVER
        # Snapshots are the main thread's; whatever other thread asks is a cell's. So is what the
        # guest asks when it is a snapshot that is to fork.
        due = [pid for pid in self._forks_due if pid in {group, None}]
        if request.task != group or flags & CLONE_SHARED or not due:
            return False
        self._forks_due.remove(due[0])
        return True

    def _lay(self, request: Request, group: int, threads: int) -> bool:
        """Lay the ruleset that is due on the process it is due on; say whether that is this call.

        The one thread that there is stands still, nobody else has its descriptors, and the number
        that it names is the ruleset's from here on: what it does next is to be restricted.
        """
        lock = self._lock
        if lock is None or request.task != lock.pid or group != lock.pid or threads != 1:
            return False
        if request.args[1]:  # flags, of which some make it fail
            return False
        self._lock = None
        try:
            lock.clear()
            self._add(request, lock.ruleset)
        finally:
            os.close(lock.ruleset)
        lock.lower()  # not before: a limit on open files would keep the number from being used
        lock.done()
        return True

    def _add(self, request: Request, fd: int) -> None:
        """Put a descriptor of ours behind the number that a stopped call names. Raises OSError."""
        added = _ADDFD.pack(request.id, ADDFD_SETFD, fd, request.args[0], CLOEXEC)
        while True:
            # The ends of those that were just killed interrupt it.
            with contextlib.suppress(InterruptedError):
                fcntl.ioctl(self._listener, NOTIF_ADDFD, bytearray(added))
                return

    def _count(self, task: int, threads: int) -> int:
        """Count the guest's tasks, those that were let through and may not have begun included.

        ``threads`` are those of the process that asks. Raises OSError when that is gone.
        """
        now = time.monotonic()
        self._started = {
            who: when
            for who, when in self._started.items()
            if who != task and now - when < SETTLING
        }
        present = _tasks_of_session(os.getsid(task)) if self._processes else threads
        return present + len(self._started)

    def _receive(self) -> Request | None:
        """Return the stopped call; None for one that the gate does not know (never expected)."""
        space = bytearray(_NOTIF.size)
        fcntl.ioctl(self._listener, NOTIF_RECV, space)
        ident, task, _, number, audit, _, *args = _NOTIF.unpack(space)
        name = self._names.get(number)
        if name is None or audit != self._audit:
            self._send(ident, errno.EPERM)
            return None
        # Process ids and clone's flags are 32 bits wide to the OS kernel.
        return Request(ident, task, name, tuple(arg & 0xFFFFFFFF for arg in args))

    def _send(self, ident: int, refusal: int) -> None:
        response = _RESPONSE.pack(ident, 0, -refusal, 0 if refusal else CONTINUE)
        while True:
            try:
                fcntl.ioctl(self._listener, NOTIF_SEND, response)
            except InterruptedError:  # by a child's end; Python does not see to that
                continue
            except FileNotFoundError:  # its task was killed meanwhile
                pass
            return


def _filter(arch: Arch, grants: Grants) -> Iterator[seccomp.Item]:
    numbers = arch.numbers
    yield Op(seccomp.LD_W_ABS, seccomp.OFFSET_ARCH)
    yield Op(seccomp.JEQ, arch.audit, no="pass")  # the main filter refuses what is foreign
    yield Op(seccomp.LD_W_ABS, seccomp.OFFSET_NR)
    told: tuple[str, ...] = (*STARTING, LOCKING)
    told += REACHING if grants.network else ()
    told += (EXECUTING,) if grants.subprocess else ()
    for name in told:
        if name in numbers:
            yield Op(seccomp.JEQ, numbers[name], yes="stop")
    for name in SIGNALLING:
        yield Op(seccomp.JEQ, numbers[name], yes="whom")
    if grants.network:
        yield Op(seccomp.JEQ, numbers[SENDING_TO], yes="where")
        yield Op(seccomp.JEQ, numbers[SENDING], yes="how")
    yield Op(seccomp.JA, yes="pass")
    if grants.network:
        yield from _sending()
    yield Label("whom")
    yield Op(seccomp.LD_W_ABS, seccomp.low(0))
    yield Op(seccomp.JEQ, slot=True, yes="pass")
    yield Label("stop")
    yield Op(seccomp.RET, RET_USER_NOTIF)
    yield Label("pass")
    yield Op(seccomp.RET, seccomp.RET_ALLOW)


def _sending() -> Iterator[seccomp.Item]:
    """Stop what is sent to an address; the main filter refuses the flags that pass here."""
    yield Label("where")
    for half in (seccomp.low(_ADDRESS), seccomp.high(_ADDRESS)):
        yield Op(seccomp.LD_W_ABS, half)
        yield Op(seccomp.JEQ, 0, no="stop")
    yield Op(seccomp.JA, yes="pass")
    yield Label("how")
    yield Op(seccomp.LD_W_ABS, seccomp.low(_FLAGS))
    yield Op(seccomp.JEQ, HANDING_OVER, yes="pass", no="stop")


def _group(task: int) -> tuple[int, int]:
    """Return a task's process and how many threads that has. Raises OSError when it is gone."""
    found = _STATUS.search(_read(f"/proc/{task}/status"))
    if found is None:
        raise ProcessLookupError(task)
    return int(found[1]), int(found[2])


def _threads(pid: int) -> int:
    try:
        return _group(pid)[1]
    except OSError:
        return 0


def _tasks_of_session(own: int) -> int:
    """Count the threads of all our descendants in a session.

    These are a guest and what it started; orphans came back to us, a subreaper.
    """
    return sum(_threads(pid) for pid in descendants(os.getpid()) if session(pid) == own)


def session(pid: int) -> int:
    """Return a process's session, -1 when it is gone."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return -1


def descendants(pid: int) -> Iterator[int]:
    """Yield the children of all of a process's threads, and theirs, as far as they can be read."""
    waiting = _children(pid)
    while waiting:
        child = waiting.pop()
        yield child
        waiting += _children(child)


def _children(pid: int) -> list[int]:
    """Return what the threads of ``pid`` have started; any of them may end while we look."""
    found: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for task in tasks:
        with contextlib.suppress(OSError):
            found += map(int, _read(f"/proc/{pid}/task/{task}/children").split())
    return found


def _read(path: str) -> bytes:
    """Read a file of /proc, a tenth as dear as by ``open``. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = list[bytes]()
        while part := os.read(fd, _READ):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(fd)
