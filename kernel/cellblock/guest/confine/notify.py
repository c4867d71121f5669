"""The gate: calls of a guest that the zygote decides, one by one.

A guest has two seccomp filters. The first, small one (``build``) is the gate's: it stops the calls
that the gate decides, and the OS kernel notifies the holder of the filter's *listener*, who answers
"go on" or an errno. The main filter (``seccomp``) then checks the call as well. The gate decides
calls for one of four reasons:

- The answer is not in the registers, which is all that a filter sees: how many threads there are;
  whether this fork is the snapshot that the host asked for; whether a process that is signalled,
  asked about or put in a group is the caller's. A filter could know the guest's process id, but a
  snapshot that took over has another one.
- The answer changes when the policy becomes narrower, and a filter can't be replaced: calls of the
  network, and the start of programs, if the policy allows these.
- No later lock could take the permission away: changes of modes, owners and times.
- The call takes a share of something that all programs of the user, or of the machine, have
  together: what epolls watch, ports, sockets. The gate counts these.

The zygote holds the listener: it is trusted, idle, and outlives its guests. It decides by registers
and /proc, never by the caller's memory, so nothing can change between its look and the call. If no
gate can be set up, the main filter refuses the same calls by itself, and RLIMIT_NPROC counts tasks.

Parts: the filter (``build``, ``install``); what a ``Gate`` keeps (``Allowances``, ``Sessions``,
``Starts``); the ``Gate``; then functions that look at processes in /proc, and ``end_sessions``.

Source: seccomp_unotify(2), <linux/seccomp.h>.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import signal
import socket
import struct
import time
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from cellblock.descriptors import is_readable
from cellblock.guest.confine import process, seccomp
from cellblock.guest.confine.libc import (
    LockFailed,
    is_anonymous,
    read_memory,
    write_memory,
)
from cellblock.guest.confine.seccomp import Label, Op
from cellblock.guest.confine.syscalls import (
    ABOUT_PROCESSES,
    ATTRIBUTES,
    BEGINS_USE,
    CHANGING_MODES,
    CLONE_NEVER,
    CLONE_SHARED,
    CLONE_THREAD,
    CLONE_VM,
    HANDING_OVER,
    NOTIF_ADDFD,
    NOTIF_ID_VALID,
    NOTIF_RECV,
    NOTIF_SEND,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from cellblock.guest.confine.arch import Arch
    from cellblock.guest.confine.syscalls import Grants
    from cellblock.wire.messages import Limits, Plan


# <linux/seccomp.h>
NEW_LISTENER: Final = 1 << 3
#: Once the zygote has received a call, no signal interrupts it. Otherwise the call would be made,
#: and reported, again: a fork would be counted twice.
WAIT_KILLABLE: Final = 1 << 5
RET_USER_NOTIF: Final = 0x7FC00000
CONTINUE: Final = 1
ADDFD_SETFD: Final = 1
_ADDFD: Final = struct.Struct("=QIIII")
_NOTIF: Final = struct.Struct("=QIIiIQ6Q")
_RESPONSE: Final = struct.Struct("=QqiI")
#: What a listener is called among a process's descriptors (proc(5)).
_LISTENER: Final = "anon_inode:seccomp notify"

#: Calls that make a task, and calls that signal one.
STARTING: Final = ("clone", "fork", "vfork")
SIGNALLING: Final = ("kill", "tgkill")
#: Restricts its caller by one more ruleset. Passes only for a ruleset of the zygote's that is due.
LOCKING: Final = "landlock_restrict_self"
#: Calls that reach a new peer: stopped if the policy allows a network. Data on a connected socket
#: are not stopped, because the guest's own channel sends in the same way.
REACHING: Final = ("accept", "accept4", "bind", "connect", "listen", "sendmmsg", "socket")
#: Stopped unless it names no address.
SENDING_TO: Final = "sendto"
#: Stopped unless its flags are those with which the listener is sent (``HANDING_OVER``).
SENDING: Final = "sendmsg"
#: Numbers of the arguments that are checked.
_ADDRESS, _FLAGS = 4, 2
#: Always stopped: forks of a sandbox must begin a session, programs may, and the guest may not.
SESSION: Final = "setsid"
#: The start of a program, and a change of process groups: stopped if the policy allows programs.
EXECUTING: Final = "execve"
GROUP: Final = "setpgid"
#: Calls that ask about a process or set something for it, with the number of the argument that
#: names it. Stopped unless that is 0, which means the caller itself.
ABOUT: Final = dict.fromkeys(ABOUT_PROCESSES, 0) | {"getpriority": 1}
#: Errnos of refused calls other than EPERM. glibc asks about threads by their ids, and takes ENOSYS
#: for "not known".
_REFUSED_WITH: Final = {"sched_getaffinity": errno.ENOSYS}
#: Stopped for SIGCHLD, if the policy allows programs: see ``Gate._make_calls_restart``.
HANDLING: Final = "rt_sigaction"
#: Numbers of the arguments that are checked: the signal, and the address of a sigaction.
_HANDLED, _ACTION = 0, 1
#: struct kernel_sigaction (<linux/signal_types.h>): handler, flags, restorer, mask.
_SIGACTION: Final = struct.Struct("=4Q")
_SIGACTION_FLAGS: Final = 8
_WORD: Final = struct.Struct("=Q")
SA_RESTART: Final = 0x1000_0000
#: Mask of the signals that have a name. Not all 64: the C library keeps some real-time signals for
#: itself, so a program that blocks every signal leaves them out.
_EVERY_SIGNAL: Final = 0x7FFF_FFFF
#: Stopped if cells may set modes, owners and times.
SETTING: Final = (*CHANGING_MODES, *ATTRIBUTES)
#: Stopped when it adds a descriptor to an epoll, and counted.
WATCHING: Final = "epoll_ctl"
_OPERATION, _ADD = 1, 1
#: Counted: each may take a port, ``listen`` for a socket that has none.
TAKING_PORTS: Final = ("bind", "listen")
#: Stopped if devices are granted: the requests by which a process begins to use a device.
REQUESTING: Final = "ioctl"
_REQUEST: Final = 1
#: The number of sockets for datagrams is bounded in a session's own network.
MAKING_SOCKETS: Final = "socket"
_NETWORKING: Final = frozenset({*REACHING, SENDING_TO, SENDING})
_STOPPED: Final = (
    *(*STARTING, *SIGNALLING, LOCKING, EXECUTING, WATCHING, REQUESTING),
    *(*REACHING, SENDING_TO, SENDING),
    *(SESSION, GROUP, *ABOUT, HANDLING),
    *SETTING,
)
#: Sessions that are remembered for a guest before those that have ended are looked for.
_FEW_SESSIONS: Final = 64
#: Programs that are remembered before those that have ended are looked for: more than may run.
_MANY_PROGRAMS: Final = 8_192


def build(arch: Arch, grants: Grants) -> seccomp.Program:
    """Compile the filter that stops the gate's calls.

    The filter contains no process id. A fork of a sandbox inherits the filter of the guest that it
    is a copy of, and would be allowed to name that guest as if it were itself.
    """
    return seccomp.assemble(list(_filter(arch, grants)))


def _filter(arch: Arch, grants: Grants) -> Iterator[seccomp.Item]:
    numbers = arch.numbers
    yield Op(seccomp.LD_W_ABS, seccomp.OFFSET_ARCH)
    yield Op(seccomp.JEQ, arch.audit, no="pass")  # the main filter refuses foreign calls
    yield Op(seccomp.LD_W_ABS, seccomp.OFFSET_NR)
    for name in filter(numbers.__contains__, _always_stopped(grants)):
        yield Op(seccomp.JEQ, numbers[name], yes="stop")
    for name, arg in ABOUT.items():
        yield Op(seccomp.JEQ, numbers[name], yes=f"about {arg}")
    if grants.network:
        yield Op(seccomp.JEQ, numbers[SENDING_TO], yes="where")
        yield Op(seccomp.JEQ, numbers[SENDING], yes="how")
    if grants.subprocess:
        yield Op(seccomp.JEQ, numbers[HANDLING], yes="which")
    yield Op(seccomp.JEQ, numbers[WATCHING], yes="what")
    if grants.requests:
        yield Op(seccomp.JEQ, numbers[REQUESTING], yes="request")
    yield Op(seccomp.JA, yes="pass")
    if grants.requests:
        yield from _requesting(grants.requests)
    if grants.subprocess:
        yield Label("which")
        yield Op(seccomp.LD_W_ABS, seccomp.low(_HANDLED))
        yield Op(seccomp.JEQ, signal.SIGCHLD, yes="stop", no="pass")
    yield Label("what")
    yield Op(seccomp.LD_W_ABS, seccomp.low(_OPERATION))
    yield Op(seccomp.JEQ, _ADD, yes="stop", no="pass")
    if grants.network:
        yield from _sending()
    for arg in sorted({*ABOUT.values()}):
        yield Label(f"about {arg}")
        yield Op(seccomp.LD_W_ABS, seccomp.low(arg))
        yield Op(seccomp.JEQ, 0, yes="pass", no="stop")
    yield Label("stop")
    yield Op(seccomp.RET, RET_USER_NOTIF)
    yield Label("pass")
    yield Op(seccomp.RET, seccomp.RET_ALLOW)


def _always_stopped(grants: Grants) -> tuple[str, ...]:
    """Return the names of the calls that are stopped with any arguments."""
    stopped: tuple[str, ...] = (*STARTING, LOCKING, SESSION)
    stopped += REACHING if grants.network else ()
    stopped += (EXECUTING, GROUP) if grants.subprocess else ()
    stopped += SETTING if grants.attributes else ()
    return (*stopped, *SIGNALLING)


def _requesting(families: Iterable[str]) -> Iterator[seccomp.Item]:
    """Yield the check of ioctl(2): stop the requests by which a process begins to use a device.

    The main filter decides which requests are allowed.
    """
    yield Label("request")
    for family in sorted(families):
        for bits, values in BEGINS_USE[family]:
            yield Op(seccomp.LD_W_ABS, seccomp.low(_REQUEST))
            yield Op(seccomp.AND, bits)
            for value in values:
                yield Op(seccomp.JEQ, value, yes="stop")
    yield Op(seccomp.JA, yes="pass")


def _sending() -> Iterator[seccomp.Item]:
    """Yield the check of sending calls: stop those that name an address.

    ``sendmsg`` with the flags ``HANDING_OVER`` passes here. After the guest has sent its listener,
    the main filter refuses these flags.
    """
    yield Label("where")
    for half in (seccomp.low(_ADDRESS), seccomp.high(_ADDRESS)):
        yield Op(seccomp.LD_W_ABS, half)
        yield Op(seccomp.JEQ, 0, no="stop")
    yield Op(seccomp.JA, yes="pass")
    yield Label("how")
    yield Op(seccomp.LD_W_ABS, seccomp.low(_FLAGS))
    yield Op(seccomp.JEQ, HANDING_OVER, yes="pass", no="stop")


def install(arch: Arch, pid: int, grants: Grants, hand_over: Callable[[int], None]) -> None:
    """Put this thread under the gate and give the listener away. Raises OSError, LockFailed.

    ``hand_over`` must send the listener to the zygote. From then on the gate's calls wait for an
    answer. The listener is closed in this process, because its holder decides.
    """
    program = build(arch, grants)
    try:
        listener = seccomp.load_filter(arch, program, pid, NEW_LISTENER | WAIT_KILLABLE)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        listener = seccomp.load_filter(arch, program, pid, NEW_LISTENER)  # before Linux 5.19
    if os.readlink(f"/proc/self/fd/{listener}") != _LISTENER:
        raise LockFailed("no listener came of the gate's filter")
    try:
        hand_over(listener)
    finally:
        os.close(listener)


class Request(msgspec.Struct, frozen=True):
    """A stopped call: its id, the task that makes it, the call's name and arguments."""

    id: int
    task: int
    call: str
    args: tuple[int, ...]


class DueRuleset(msgspec.Struct, frozen=True):
    """A Landlock ruleset that waits until process ``pid`` asks for it.

    ``fd`` is the ruleset, and is closed once ``pid`` has it. If the process must be ``alone``, all
    other processes in its guest's sessions are killed first. Afterwards the resource ``limits`` are
    lowered (``process.lower_limits``), and ``done`` is called just before the process's only thread
    goes on, restricted.
    """

    pid: int
    fd: int
    limits: Limits
    done: Callable[[], None]
    alone: bool = True


class Allowance:
    """How much a session may still take of something that it shares with other programs.

    The gate isn't told what a session gives back. So the allowance grows with time, up to ``most``.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._left = float(most)
        self._counted = time.monotonic()

    def take(self) -> bool:
        """Take one; return False if there is none left."""
        now = time.monotonic()
        grown = (now - self._counted) * self._most / REGROWN
        self._left, self._counted = min(self._most, self._left + grown), now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Allowances:
    """An allowance for each user of a guest's sessions, so that none uses up another's."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_user = dict[int, Allowance]()

    def take(self, user: int) -> bool:
        """Take one for a user; return False if it has none left."""
        if user not in self._by_user:
            self._by_user[user] = Allowance(self._most)
        return self._by_user[user].take()


class Sessions:
    """The sessions (setsid(2)) of one guest, its copies and the programs that they started.

    The first session is the guest's own. Programs may begin others without saying so. The gate
    therefore stops ``setsid``, and records the new session's number before the session exists.
    ``tell`` is called with all sessions and their users each time one is added.

    Each session has a *user*, a number that the host gives: a sandbox, or a fork of it. ``user`` is
    the user of the session ``first``. The session of a fork has the fork as user, and a session
    that a program begins has the user of the session that the program was in.
    """

    def __init__(
        self,
        first: int | None = None,
        tell: Callable[[dict[int, int]], object] = bool,
        user: int = 0,
    ) -> None:
        #: The guest's own session: one number, or none if it is not known yet or has ended.
        self.first = frozenset() if first is None else frozenset({first})
        self._user = user
        #: The user of each session, by the session's number (setsid(2)). A user is a sandbox or a
        #: fork, by the host's number for it, and no uid.
        self._users = dict.fromkeys(self.first, user)
        #: Users who may not set modes, owners and times.
        self._without_attributes = set[int]()
        self._tell = tell
        #: Number of sessions above which those that have ended are looked for and forgotten.
        self._most = _FEW_SESSIONS

    def __contains__(self, number: int) -> bool:
        return number in self._users

    def __iter__(self) -> Iterator[int]:
        return iter(self._users)

    def user_of(self, number: int) -> int:
        """Return a session's user; for an unknown session, the user of the first one."""
        return self._users.get(number, self._user)

    def user_of_task(self, task: int) -> int:
        """Return a task's user: that of the session in which the task is."""
        return self.user_of(session(task))

    def begin(self, number: int, user: int) -> None:
        """Record that process ``number`` may begin a session, whose user is ``user``."""
        if self._users.get(number) == user:
            return
        if not self.may_set_attributes(number):  # a fork of one that may not
            self._without_attributes.add(user)
        self._users[number] = user
        if len(self._users) > self._most:
            # Pids count as well as sessions: a process may be about to begin the session that was
            # recorded for it.
            alive = {number for process in everybody() for number in process}
            for ended_session in self._users.keys() - alive:
                self.forget(ended_session)
            self._most = max(_FEW_SESSIONS, 2 * len(self._users))
        self._tell(dict(self._users))

    def take_attributes(self, number: int) -> None:
        """Forbid the user of session ``number`` to set modes, owners and times, for good."""
        self._without_attributes.add(self.user_of(number))

    def may_set_attributes(self, task: int) -> bool:
        """Return whether a task's user may set modes, owners and times."""
        # Usually all users may, and then the task's session need not be looked up.
        forbidden = self._without_attributes
        return not forbidden or self.user_of_task(task) not in forbidden

    def forget(self, number: int) -> None:
        """Forget session ``number``, which is empty: another guest's process has its number now."""
        self._users.pop(number, None)
        self.first -= {number}


class Starts:
    """Starts of threads and processes that the gate allowed, and that /proc may not show yet.

    A count of tasks must include them, or a guest could make many starts at once and exceed its
    limit. No time-out ends such a pending start, because a guest can make its start as slow as it
    likes: a fork copies many mappings, in a process that others keep from running. A start is over
    when the task that made it

    - has ended,
    - makes another call that the gate stops,
    - or waits for something, which a task in Linux never does while it makes another one.

    The start of a thread is also over when its process has all the threads that it was allowed to
    start. A task has at most one pending start.
    """

    def __init__(self) -> None:
        #: By task: its process, and whether it starts a thread.
        self._pending: dict[int, tuple[int, bool]] = {}
        #: By process: how many threads it will have when all its pending starts of threads have
        #: succeeded. It has fewer if a start failed, or a thread has ended since the first start.
        self._expected: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, task: int, process_id: int, threads: int, *, is_thread: bool) -> None:
        """Record that ``task`` may start another task.

        ``threads`` is how many threads its process has now; ``is_thread`` says that it starts one
        more.
        """
        if is_thread:
            before = self._expected.get(process_id, threads)
            self._expected[process_id] = before + 1
        self._pending[task] = process_id, is_thread

    def end(self, task: int) -> None:
        """Record that ``task`` makes another call, so that its pending start is over."""
        if self._pending.pop(task, None) is not None:
            self._forget_processes()

    def look(self) -> None:
        """Forget starts that are over. A count made after this finds the tasks they started."""
        complete = {pid for pid, most in self._expected.items() if thread_count(pid) >= most}
        for task, (process_id, is_thread) in tuple(self._pending.items()):
            if (is_thread and process_id in complete) or not _may_be_starting(task):
                del self._pending[task]
        self._forget_processes()

    def _forget_processes(self) -> None:
        starting = {process_id for process_id, is_thread in self._pending.values() if is_thread}
        self._expected = {pid: most for pid, most in self._expected.items() if pid in starting}


class Gate:
    """The zygote's end of one guest's gate.

    The zygote calls ``answer`` when the listener is readable. ``plan`` is the guest's present plan,
    which a narrowing replaces. ``sessions`` are those of the guest. Before a guest, or a copy that
    has taken over, makes its first request to a device, ``on_device_use`` is called with its pid.
    The other methods tell the gate what the host expects next: a fork for a snapshot, a ruleset, a
    session.
    """

    def __init__(
        self,
        listener: int,
        arch: Arch,
        plan: Plan,
        sessions: Sessions,
        on_device_use: Callable[[int], object] = bool,
    ) -> None:
        self._listener = listener
        self._audit = arch.audit
        self.plan = plan
        self._sessions = sessions
        self._on_device_use = on_device_use
        #: Guests that use a device. They may not fork a copy, which would lack the device's state.
        self._device_users = set[int]()
        #: The processes that were allowed to execute a program, by pid. The guest and its snapshots
        #: are never among them. The value is the process's image when it was allowed, or None if it
        #: had several threads then, or may share its memory with another process since.
        self._programs: dict[int, _Image | None] = {}
        #: The groups of programs, each with its session, and the time until which they count.
        self._groups: tuple[dict[int, int], float] = {}, 0.0
        self._names = {arch.numbers.get(name, -1): name for name in _STOPPED}
        #: By the process that will ask for the ruleset.
        self._due_rulesets: dict[int, DueRuleset] = {}
        #: Processes that may fork once, as a snapshot is due; None is whichever asks first.
        self._due_forks: list[int | None] = []
        #: Snapshots that may begin a session, as forks of a sandbox.
        self._due_sessions = set[int]()
        #: By process: pidfds of snapshots, which no cell may signal.
        self._protected: dict[int, int] = {}
        self._starts = Starts()
        self._watches = Allowances(WATCHES)
        self._ports = Allowances(PORTS)
        #: The user who made the call that was received last.
        self.asking = 0

    def close(self) -> None:
        """Close the listener. Calls that are stopped now or later then fail with ENOSYS."""
        os.close(self._listener)
        for pidfd in self._protected.values():
            os.close(pidfd)

    def protect(self, pid: int) -> None:
        """Refuse every signal to snapshot ``pid``.

        Without this, a guest that may start programs could signal its snapshots like its other
        child processes.
        """
        for snapshot in tuple(self._protected):
            self._is_protected(snapshot)
        if pid not in self._protected:
            self._device_users.discard(pid)  # an earlier process had this pid
            with contextlib.suppress(OSError):  # it is gone
                self._protected[pid] = os.pidfd_open(pid)

    def _is_protected(self, pid: int) -> bool:
        """Return whether ``pid`` is a living snapshot; forget a snapshot that has ended."""
        pidfd = self._protected.get(pid)
        if pidfd is None:
            return False
        if not is_readable(pidfd):
            return True
        os.close(self._protected.pop(pid))
        return False

    def expect_ruleset(self, ruleset: DueRuleset) -> None:
        """Put one more ruleset on a process when the process asks for it.

        Until then the process may start nothing; if it must be alone, no process of this gate may.
        """
        self._withdraw_rulesets(None if ruleset.alone else ruleset.pid)
        self._due_rulesets[ruleset.pid] = ruleset
        if ruleset.alone:
            self._due_forks.clear()

    def _withdraw_rulesets(self, pid: int | None) -> None:
        """Close the rulesets that wait for ``pid``, and any whose process must be ``alone``.

        If ``pid`` is None, close all of them.
        """
        for ruleset in tuple(self._due_rulesets.values()):
            if ruleset.alone or pid in {ruleset.pid, None}:
                os.close(self._due_rulesets.pop(ruleset.pid).fd)

    def allow_fork(self, pid: int | None) -> None:
        """Allow the next fork of ``pid``, or for None of whichever process asks first.

        The host asked for a snapshot. Any ruleset that was due on the process is withdrawn.
        """
        self._withdraw_rulesets(pid)
        self._due_forks.append(pid)

    def allow_session(self, pid: int) -> None:
        """Allow snapshot ``pid`` to begin a session, once: it becomes a fork of a sandbox."""
        self._due_sessions.add(pid)

    def withdraw_fork(self, but: Collection[int] = ()) -> None:
        """Withdraw what ``allow_fork`` allowed, except for the processes in ``but``."""
        self._due_forks = [pid for pid in self._due_forks if pid in but]

    def answer(self, before: Callable[[], None] = lambda: None) -> bool:
        """Receive and answer one stopped call. Return False if the guest is gone.

        ``before`` is called when the call was received and has not been decided.
        """
        space = bytearray(_NOTIF.size)
        try:
            fcntl.ioctl(self._listener, NOTIF_RECV, space)
        except (FileNotFoundError, InterruptedError):  # its task was killed, or a child ended
            return True
        except OSError:
            return False
        ident, task, _, number, audit, _, *args = _NOTIF.unpack(space)
        self.asking = self._sessions.user_of_task(task)
        before()
        name = self._names.get(number)
        refusal = errno.EPERM  # for a call that the gate does not know (never expected)
        if name == HANDLING and audit == self._audit:
            self._make_calls_restart(ident, task, args[_ACTION])
            refusal = 0
        elif name is not None and audit == self._audit:
            # Process ids and clone's flags are 32 bits wide to the OS kernel.
            arguments = tuple(arg & 0xFFFFFFFF for arg in args)
            refusal = self.decide(Request(ident, task, name, arguments))
        response = _RESPONSE.pack(ident, 0, -refusal, 0 if refusal else CONTINUE)
        with contextlib.suppress(FileNotFoundError):  # its task was killed meanwhile
            self._ioctl(NOTIF_SEND, response)
        return True

    def _ioctl(self, operation: int, data: bytes) -> None:
        """Call ioctl(2) on the listener; repeat the call if SIGCHLD interrupted it."""
        while True:
            with contextlib.suppress(InterruptedError):
                fcntl.ioctl(self._listener, operation, data)
                return

    def _make_calls_restart(self, ident: int, task: int, address: int) -> None:
        """Add SA_RESTART to the SIGCHLD handler that a shell is about to set.

        ``ident`` and ``task`` are the stopped call's; ``address`` is that of its sigaction.

        A signal interrupts a stopped call until the zygote has received it. If the signal's handler
        does not restart calls (SA_RESTART), a fork then fails with EINTR, which happens nowhere
        else: dash and busybox end a pipeline with "Cannot fork". Their handlers are recognised
        because they block every signal. Other programs block signals around a fork, or restart
        calls.

        No decision depends on the memory that is read here, and only the caller's own memory is
        written. Memory that another process may share, or that maps a file, is left alone: another
        process could lock it and make the zygote wait.
        """
        with contextlib.suppress(OSError, struct.error):
            process_id, threads = _process_of(task)
            if threads != 1 or not self._has_own_memory(process_id):
                return
            if not is_anonymous(task, address, _SIGACTION.size):
                return
            action = read_memory(task, address, _SIGACTION.size)
            handler, flags, _, mask = _SIGACTION.unpack(action)
            blocks = mask & _EVERY_SIGNAL == _EVERY_SIGNAL
            if handler not in {signal.SIG_DFL, signal.SIG_IGN} and blocks:
                # Make sure that the call still waits, so that ``task`` is still the caller. Linux
                # gives its number to another task only after all other numbers.
                self._ioctl(NOTIF_ID_VALID, _WORD.pack(ident))
                write_memory(task, address + _SIGACTION_FLAGS, _WORD.pack(flags | SA_RESTART))

    def _has_own_memory(self, process_id: int) -> bool:
        """Return whether no other process shares this one's memory. Its only thread has called.

        A process has memory of its own once it executes a program, unless it has since started a
        process that shares it. kcmp(2) would say so, but neither it nor /proc of other processes
        may be asked: see ``_image_of``. Raises OSError if the process is gone.
        """
        before = self._programs.get(process_id)
        if before is None:
            return False
        present = _image_of(process_id)
        return present.began == before.began and present.stack != before.stack

    def decide(self, request: Request) -> int:
        """Return 0 to allow the call, or the errno with which it must fail."""
        try:
            return self._decide(request)
        except (OSError, LockFailed):  # the task is gone, or /proc can't be read: fail closed
            return errno.EPERM

    def _decide(self, request: Request) -> int:
        self._starts.end(request.task)
        if request.call in _NETWORKING:
            return self._reach(request) if self.plan.has_sockets else errno.EACCES
        if request.call in SETTING:
            may = self.plan.attributes and self._sessions.may_set_attributes(request.task)
            return 0 if may else errno.EPERM
        if request.call == WATCHING:
            may = self._watches.take(self._sessions.user_of_task(request.task))
            return 0 if may else errno.ENOSPC
        process_id, threads = _process_of(request.task)
        if request.call in STARTING:
            return self._start(request, process_id)
        if self._may(request, process_id, threads):
            return 0
        return _REFUSED_WITH.get(request.call, errno.EPERM)

    def _note_use(self, process_id: int) -> None:
        """Note that a guest begins to use a device; from now on no copy of it is made.

        Programs that the guest started do not count: they are not copied, and end with it.
        """
        if process_id not in self._device_users and self._is_guest(process_id):
            self._device_users.add(process_id)
            self._on_device_use(process_id)

    def _may(self, request: Request, process_id: int, threads: int) -> bool:
        """Return whether a process may make this call, which starts no task."""
        if request.call == EXECUTING:
            return self._may_execute(process_id, threads)
        if request.call == REQUESTING:
            self._note_use(process_id)
            return True
        if request.call == LOCKING:
            return self._lay_ruleset(request, process_id, threads)
        if request.call == SESSION:
            return self._begin_session(process_id)
        target = _signed(request.args[ABOUT.get(request.call, 0)])
        if request.call == GROUP:
            target = target or process_id
            if not self._may_be_in(target, _signed(request.args[1]) or target):
                return False
        return self._may_name(request.call, target, process_id)

    def _may_be_in(self, target: int, group: int) -> bool:
        """Return whether process ``target`` may be put in ``group``.

        The guest and its snapshots must stay in their group, and no other process may join it. A
        process that signals its own group (``kill`` with 0) could otherwise be moved into the
        guest's group after the gate has looked up which group it is in.
        """
        return not self._is_guest(target) and not self._is_guests_group(group)

    def _is_guests_group(self, group: int) -> bool:
        """Return whether a guest or a snapshot is in ``group``."""
        guests = (pid for pid in tuple(self._protected) if self._is_protected(pid))
        return group in self._sessions.first or group in map(_group, guests)

    def _is_guest(self, pid: int) -> bool:
        """Return whether ``pid`` is the guest, a snapshot, or a snapshot that took over."""
        return pid in self._sessions.first or self._is_protected(pid)

    def _may_execute(self, process_id: int, threads: int) -> bool:
        """Return whether a process may execute a program; if so, remember its present image.

        The guest and its snapshots may not. The program would replace them, and whoever reads their
        use of resources in /proc would wait while it does (see ``_image_of``).
        """
        if not self.plan.subprocess or self._is_guest(process_id):
            return False
        self._programs[process_id] = _image_of(process_id) if threads == 1 else None
        if len(self._programs) > _MANY_PROGRAMS:
            living = {pid for pid, _ in everybody()}
            self._programs = {pid: image for pid, image in self._programs.items() if pid in living}
        return True

    def _begin_session(self, process_id: int) -> bool:
        """Return whether a process may begin a session; if so, record it.

        The session's number will be the pid. A snapshot may begin one only if it becomes the guest
        of a fork: the host has then recorded its user (``Sessions.begin``). Other snapshots could
        leave their guest's session, as unlike a guest they don't lead it.
        """
        if process_id in self._due_sessions:
            self._due_sessions.remove(process_id)
            return True
        if not self.plan.subprocess or self._is_guest(process_id):
            return False
        self._sessions.begin(process_id, self._sessions.user_of_task(process_id))
        return True

    def _may_name(self, call: str, target: int, process_id: int) -> bool:
        """Return whether process ``process_id`` may name ``target`` in a call.

        ``target`` is a process, or for ``kill`` a group if it is negative or 0. A process may name
        itself, and if the policy allows programs also

        - what it has started, except snapshots, and any program in a session of its user, so that
          one cell can end what another has started, which may be an orphan by now;
        - a group in a session of its user, unless the guest or a snapshot is in that group.

        It may name nothing of another user, whoever started it. That holds for all calls, because a
        resource limit ends a process as well as a signal does.
        """
        user = self._sessions.user_of_task(process_id)
        if call == "kill" and target <= 0:
            group = -target or _group(process_id)
            return self.plan.subprocess and self._is_of_programs(group, user)
        if call in ABOUT:  # these accept the ids of threads, too
            with contextlib.suppress(OSError):
                target = _process_of(target)[0]
        if target == process_id:
            return True
        if self._is_protected(target) or self._sessions.user_of_task(target) != user:
            return False
        return self.plan.subprocess and (descends(target, process_id) or self._is_program(target))

    def _is_program(self, pid: int) -> bool:
        is_ours = pid in self._programs and session(pid) in self._sessions
        return is_ours and descends(pid, os.getpid())

    def _is_of_programs(self, group: int, user: int) -> bool:
        if self._is_guests_group(group):
            return False
        number = session(group) if _group(group) == group else -1
        if number not in self._sessions or not descends(group, os.getpid()):
            number = self._groups_of_programs().get(group, -1)
        return number in self._sessions and self._sessions.user_of(number) == user

    def _groups_of_programs(self) -> dict[int, int]:
        """Return the session of each group in the guest's sessions, by the group's number.

        Groups whose leader has ended are included.

        The look takes long if there are many processes, and all stopped calls wait meanwhile. So
        its result counts for ten times as long as the look took. No number is given to another
        group so soon: there are at least 32,768.
        """
        groups, until = self._groups
        if (began := time.monotonic()) >= until:
            members = ((pid, session(pid)) for pid in descendants(os.getpid()))
            groups = {_group(pid): number for pid, number in members if number in self._sessions}
            groups.pop(-1, None)
            end = time.monotonic()
            self._groups = groups, end + _REMEMBERED * (end - began)
        return groups

    def _reach(self, request: Request) -> int:
        """Decide a call of the network: return 0 or an errno. The plan allows a network."""
        if request.call in TAKING_PORTS:
            user = self._sessions.user_of_task(request.task)
            return 0 if self._ports.take(user) else errno.EADDRINUSE
        if request.call == MAKING_SOCKETS and self.plan.loopback and _is_udp(request.args):
            return 0 if _sockets(request.task) < MOST_SOCKETS else errno.ENOBUFS
        return 0

    def _start(self, request: Request, process_id: int) -> int:
        """Decide a call that starts a thread or process: return 0 or an errno."""
        is_due = self._is_due(request, process_id)
        if not self._may_start(request, process_id, is_due=is_due):
            return errno.EPERM
        most = self.plan.limits.max_processes
        if most is None or is_due:  # a session at its limit must still get snapshots
            return 0
        self._starts.look()
        threads = thread_count(process_id)  # after the look, which forgot starts that are over
        if self._count(threads) >= most:
            return errno.EAGAIN
        is_thread = request.call == "clone" and bool(request.args[0] & CLONE_THREAD)
        self._starts.add(request.task, process_id, threads, is_thread=is_thread)
        return 0

    def _may_start(self, request: Request, process_id: int, *, is_due: bool) -> bool:
        flags = request.args[0] if request.call == "clone" else 0
        due_rulesets = self._due_rulesets.values()
        if process_id in self._due_rulesets or any(ruleset.alone for ruleset in due_rulesets):
            return False
        shares = request.call == "vfork" or (flags & CLONE_VM and not flags & CLONE_THREAD)
        # The guest is not in ``_programs``, and is not added to it whatever it starts.
        if shares and process_id in self._programs:
            self._programs[process_id] = None
        if flags & CLONE_THREAD or self.plan.subprocess:
            return not flags & CLONE_NEVER
        return is_due

    def _is_due(self, request: Request, process_id: int) -> bool:
        """Return whether this fork makes the snapshot that is due; if so, use up the permission.

        Only main threads make snapshots. A request of another thread comes from a cell, and so does
        a request of the guest if the permission is for a snapshot that is to fork once more.
        """
        flags = request.args[0] if request.call == "clone" else 0
        expected_pids = [pid for pid in self._due_forks if pid in {process_id, None}]
        if request.task != process_id or flags & CLONE_SHARED or not expected_pids:
            return False
        if process_id in self._device_users:
            return False
        # A permission for whichever asks first is left for processes that have none of their own.
        self._due_forks.remove(process_id if process_id in expected_pids else None)
        return True

    def _count(self, threads: int) -> int:
        """Count the guest's tasks, including starts that were allowed and may not show yet.

        ``threads`` is how many threads the calling process has. If programs may not be started, the
        guest has no other tasks. Snapshots don't count, except for threads that they started.
        """
        if self.plan.subprocess:
            # The guest and what it started. Orphans are our children, since the zygote is a
            # subreaper. If a process ends during the walk, its descendants may be missed. The count
            # is then too low, but that end made room for one more task.
            pids = [pid for pid in descendants(os.getpid()) if session(pid) in self._sessions]
            threads = sum(map(thread_count, pids))
            # Subtract one thread for each snapshot: snapshots don't count against the limit. The
            # threads that a snapshot starts after it took over do count.
            threads -= sum(map(self._is_protected, pids))
        return threads + len(self._starts)

    def _lay_ruleset(self, request: Request, process_id: int, threads: int) -> bool:
        """Give the caller the ruleset that is due on it; return whether it is the one to ask.

        The caller's only thread is stopped, and no other process shares its descriptors. So the
        descriptor number that it names in this call can be made the ruleset's, and the call, once
        it goes on, restricts the thread by it.
        """
        ruleset, (number, flags, *_) = self._due_rulesets.get(process_id), request.args
        if ruleset is None or threads != 1 or request.task != process_id:
            return False
        if flags:  # some of them would make the call fail
            return False
        del self._due_rulesets[process_id]
        try:
            if ruleset.alone:
                end_sessions(self._sessions, keep=(ruleset.pid,))
            request_to_add = _ADDFD.pack(request.id, ADDFD_SETFD, ruleset.fd, number, os.O_CLOEXEC)
            self._ioctl(NOTIF_ADDFD, request_to_add)
        finally:
            os.close(ruleset.fd)
        if not ruleset.alone:  # a fork, which may write in its own folder only
            self._sessions.take_attributes(process_id)
        # Not earlier: a limit on open files could exclude the ruleset's descriptor number.
        process.lower_limits(ruleset.pid, ruleset.limits)
        ruleset.done()
        return True


# Functions that look at processes in /proc.

#: In /proc/TASK/status: the task's process, and how many threads the process has.
_STATUS: Final = re.compile(rb"^Tgid:\s*(\d+)$.*^Threads:\s*(\d+)$", re.DOTALL | re.MULTILINE)
#: In the same file: the parent. Not read from /proc/PID/stat: see ``_image_of``.
_PARENT: Final = re.compile(rb"^PPid:\t(\d+)$", re.MULTILINE)
#: In the same file: a state in which a task can't be starting another. A task that starts another
#: runs, or waits uninterruptibly as for a disk (proc(5), "D").
_WAITS: Final = re.compile(rb"^State:\s*[STtZXx]\b", re.MULTILINE)
#: Bytes that one read of a file in /proc asks for.
_READ: Final = 1 << 14
#: The groups that a look found count for this many times as long as the look took.
_REMEMBERED: Final = 10
#: The largest pid (proc(5), pid_max).
_LARGEST: Final = 2**22
#: Most generations between a process and its ancestor: more than a preset lets a guest have.
_DEEPEST: Final = 1_024
#: Attempts to follow a process's ancestors; the end of one of them cuts an attempt short.
_LOOKS: Final = 16
#: Seconds within which killed sessions must be empty, and between two looks at them.
_TIMEOUT, _PAUSE = 10.0, 0.001


def _process_of(task: int) -> tuple[int, int]:
    """Return a task's process and how many threads it has. Raises OSError if the task is gone."""
    match = _STATUS.search(_read(f"/proc/{task}/status"))
    if match is None:
        raise ProcessLookupError(task)
    return int(match[1]), int(match[2])


class _Image(NamedTuple):
    """The identity of a process's memory. It changes when the process executes a program.

    Source: proc(5), /proc/PID/stat.
    """

    #: When the process was started. Another process may get its pid later.
    began: int
    #: The address of its stack, which differs in each new memory; 0 if the program's file can't be
    #: read.
    stack: int


def _image_of(process_id: int) -> _Image:
    """Return the image of a process whose only thread is stopped at the gate.

    Never ask for that of another process. One that executes a program holds a lock
    (``exec_update_lock``) until its former memory is freed, which takes half a minute if others
    keep it from the processor. Whoever reads its /proc/PID/stat, maps or mem, or calls kcmp(2),
    waits as long. Raises OSError if the process is gone.
    """
    fields = _read(f"/proc/{process_id}/stat").rpartition(b") ")[2].split()
    return _Image(began=int(fields[19]), stack=int(fields[25]))


def _may_be_starting(task: int) -> bool:
    """Return whether a task that was allowed to start another may not have done so yet."""
    try:
        return _WAITS.search(_read(f"/proc/{task}/status")) is None
    except OSError:
        return False


def _signed(number: int) -> int:
    """Return 32 bits as the signed number that the OS kernel takes them for."""
    return number - (1 << 32) if number & 0x8000_0000 else number


def thread_count(pid: int) -> int:
    """Return how many threads a process has, 0 if it is gone."""
    try:
        return _process_of(pid)[1]
    except OSError:
        return 0


def session(pid: int) -> int:
    """Return a process's session, -1 if it is gone."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return -1


def _group(pid: int) -> int:
    """Return a process's group, -1 if it is gone."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return -1


def descends(pid: int, ancestor: int) -> bool:
    """Return whether a process was started by ``ancestor``, or by a descendant of it.

    Follows the parents of ``pid``, so that the time does not grow with the number of processes. A
    process that ends meanwhile hands its children to another parent; the walk then starts again.
    """
    if not 0 < pid <= _LARGEST:  # a group, or no process
        return False
    answers = (_has_ancestor(pid, ancestor) for _ in range(_LOOKS))
    return next((answer for answer in answers if answer is not None), False)


def _has_ancestor(pid: int, ancestor: int) -> bool | None:
    """Walk from ``pid`` up to ``ancestor``; return None if a process between them has ended."""
    start = pid
    for _ in range(_DEEPEST):
        try:
            match = _PARENT.search(_read(f"/proc/{pid}/status"))
        except OSError:
            match = None
        if match is None:
            return False if pid == start else None
        pid = int(match[1])
        if pid == ancestor:
            return True
        if pid <= 1:
            return False
    return False


def descendants(pid: int) -> Iterator[int]:
    """Yield the descendants of a process: the children of all its threads, and their descendants.

    May miss some if a process ends meanwhile; ``everybody`` doesn't.
    """
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        if parent != pid:
            yield parent
        # Any of the parent's threads may end meanwhile.
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{parent}/task"):
                with contextlib.suppress(OSError):
                    waiting += map(int, _read(f"/proc/{parent}/task/{task}/children").split())


def everybody() -> Iterator[tuple[int, int]]:
    """Yield every process and its session, -1 if it is gone. Lists all of /proc, twice.

    Lists /proc instead of walking from parents to children, because a process that dies meanwhile
    hands its children to another parent. A process that is made during the first listing may be
    missing from it. The second listing has it: no further call that starts a process passes the
    gate meanwhile, as the zygote is here and answers none.
    """
    for _ in range(2):
        for name in os.listdir("/proc"):
            if name.isdecimal():
                yield int(name), session(int(name))


def _read(path: str) -> bytes:
    """Read a file in /proc, in a tenth of the time that ``open`` takes. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = list[bytes]()
        while chunk := os.read(fd, _READ):
            parts.append(chunk)
        return b"".join(parts)
    finally:
        os.close(fd)


def _most_watches() -> int:
    """Return how many descriptors all epolls of a user may watch together (epoll(7)).

    Each takes some 200 bytes of the OS kernel's memory.
    """
    try:
        return int(_read("/proc/sys/fs/epoll/max_user_watches"))
    except (OSError, ValueError):
        return 400_000  # as on a machine with 2 GiB


#: Descriptors that may be added to epolls at once: a quarter of what there may be.
WATCHES: Final = _most_watches() // 4
#: Ports that may be taken at once: a quarter of the ephemeral ports that Linux has by default
#: (ip(7), ip_local_port_range).
PORTS: Final = 28_232 // 4
#: Seconds in which an empty allowance grows to its full size. That is enough for honest servers,
#: and a session needs hours to use up what other programs need.
REGROWN: Final = 2_500


#: If a session's own network has this many sockets of any kind, no more is made for UDP. So there
#: are never more than that for UDP, though the gate does not learn which sockets are closed. Each
#: holds 208 KiB of datagrams and one more. That memory counts for no process, and all programs
#: share it (udp(7), udp_mem): when it is short, every program loses datagrams.
MOST_SOCKETS: Final = 512
_IN_USE: Final = re.compile(rb"^sockets: used (\d+)$", re.MULTILINE)
_TYPE: Final = 0xF


def _is_udp(args: tuple[int, ...]) -> bool:
    """Return whether the arguments of socket(2) ask for a UDP socket."""
    return args[0] in {socket.AF_INET, socket.AF_INET6} and args[1] & _TYPE == socket.SOCK_DGRAM


def _sockets(task: int) -> int:
    """Return how many sockets there are in a task's network. Raises OSError."""
    match = _IN_USE.search(_read(f"/proc/{task}/net/sockstat"))
    return int(match[1]) if match else MOST_SOCKETS


def end_sessions(sessions: Sessions, keep: tuple[int, ...], user: int | None = None) -> None:
    """Kill every process in a guest's sessions, except those in ``keep``.

    With a ``user``, kill only what is in that user's sessions.

    Looks repeatedly, until a look finds no process that was not killed before: a start that had
    begun may show its process only after the first look. No session can begin meanwhile, because
    the zygote is here and answers no call.

    Does not wait until the processes are gone. After SIGKILL a process runs none of its own
    instructions and starts nothing. But a call of the OS kernel that no signal ends can keep it for
    minutes (freeing a file of many pieces), and the snapshot that waits for the zygote meanwhile
    would be taken for one that does not answer.

    Raises LockFailed if processes go on starting others for ten seconds.
    """
    deadline = time.monotonic() + _TIMEOUT
    killed = set[int]()
    # Compared with the look before, not with all: a pid that was missing in the last look was free,
    # so it belongs to a new process.
    while (killed_now := _kill_all(sessions, keep, user)) - killed:
        killed = killed_now
        if time.monotonic() > deadline:
            raise LockFailed("what a cell has started goes on starting more")
        time.sleep(_PAUSE)


def _kill_all(sessions: Sessions, keep: tuple[int, ...], user: int | None) -> set[int]:
    """Kill all processes in these sessions except ``keep``; return those that were alive."""
    other_pids = (pid for pid, _ in everybody() if pid not in keep)
    return {pid for pid in other_pids if _kill_in_session(sessions, pid, user)}


def _is_in(sessions: Sessions, pid: int, user: int | None) -> bool:
    """Return whether a process is in one of these sessions, or in one of ``user``'s if given.

    A session may have ended, the first one too once the guest of a fork has taken over, and its
    number may be that of a session outside. So the process must also descend from the zygote.
    """
    number = session(pid)
    if user is not None and sessions.user_of(number) != user:
        return False
    return number in sessions and descends(pid, os.getpid())


def _kill_in_session(sessions: Sessions, pid: int, user: int | None) -> bool:
    """Kill a process if it is in one of these sessions; return whether it was and was alive."""
    if not _is_in(sessions, pid, user):
        return False
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # Checked again: before the pidfd was opened, the pid may have become another process's.
        if is_readable(fd) or not _is_in(sessions, pid, user):
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # gone, or not one of ours
        return False
    finally:
        os.close(fd)
    return True
