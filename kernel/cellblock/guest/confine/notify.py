"""The gate: calls of a guest that the zygote decides, one by one.

Some questions a filter can't answer, because the answer is not in the registers: how many
threads there are, whether a fork is the one that a snapshot is due, whether a signal's target
is the guest itself (a snapshot that took over has another process id than its filter knows).
Whose a process is that a program asks about, puts in a group or signals, a filter can't know
either: it knows one process id. Others have another answer once the policy has become narrower,
and a filter is for good: where there is a network, and where programs may be started, these calls
are asked about as well. So are modes, owners and times: no lock that comes later takes them away.
And some are counted: of what epolls watch, and of ports, there are so many
for all programs of a user, or of the machine, together. For all of them the guest's first filter
stops the call and notifies the holder of its listener.

The holder is the zygote: trusted, idle, and gone only when the guest is. It decides by registers,
never by memory, so that nothing can change between its look and the call. Where no gate is set up
the main filter refuses the same calls by itself, and RLIMIT_NPROC counts tasks.

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
#: A call that was taken up is not interrupted and told again: a fork would be counted twice.
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
#: What lays one more ruleset on its caller: the zygote's, when that is due, and no other.
LOCKING: Final = "landlock_restrict_self"
#: Stopped where the policy allows a network: what reaches somebody new. Data on what is connected
#: already are not: they go the way of the guest's own channel.
REACHING: Final = ("accept", "accept4", "bind", "connect", "listen", "sendmmsg", "socket")
#: Of these, an address, and the flags with which the listener is given away (``HANDING_OVER``).
SENDING_TO: Final = "sendto"
SENDING: Final = "sendmsg"
_ADDRESS, _FLAGS = 4, 2
#: Stopped for forks of a sandbox, each of which begins a session, and for programs, which may.
SESSION: Final = "setsid"
#: Stopped where the policy allows programs: their start, and the groups that they make.
EXECUTING: Final = "execve"
GROUP: Final = "setpgid"
#: Stopped unless they say 0, which is the caller itself: what is asked about a process or set for
#: it.
ABOUT: Final = dict.fromkeys(ABOUT_PROCESSES, 0) | {"getpriority": 1}
#: What a refused call fails with: glibc asks of threads by their ids, and takes ENOSYS for
#: "not known".
_REFUSED_WITH: Final = {"sched_getaffinity": errno.ENOSYS}
#: Stopped for the end of a child, where programs may be started: see ``Gate._have_restarted``.
HANDLING: Final = "rt_sigaction"
_HANDLED, _ACTION = 0, 1
#: struct kernel_sigaction (<linux/signal_types.h>): handler, flags, restorer, mask.
_SIGACTION: Final = struct.Struct("=4Q")
_SIGACTION_FLAGS: Final = 8
_WORD: Final = struct.Struct("=Q")
SA_RESTART: Final = 0x1000_0000
#: The signals that have a name; of the others the C library keeps some for itself.
_EVERY_SIGNAL: Final = 0x7FFF_FFFF
#: Stopped where cells may set modes, owners and times.
SETTING: Final = (*CHANGING_MODES, *ATTRIBUTES)
#: Counted: one more thing in an epoll.
WATCHING: Final = "epoll_ctl"
_OPERATION, _ADD = 1, 1
#: Counted: each may take a port, the latter for a socket that has none.
TAKING_PORTS: Final = ("bind", "listen")
#: Stopped where devices are granted: requests with which a device begins to be used.
REQUESTING: Final = "ioctl"
_REQUEST: Final = 1
#: Bounded for datagrams, in a network of a session's own.
MAKING_SOCKETS: Final = "socket"
_NETWORKING: Final = frozenset({*REACHING, SENDING_TO, SENDING})
_STOPPED: Final = (
    *(*STARTING, *SIGNALLING, LOCKING, EXECUTING, WATCHING, REQUESTING),
    *(*REACHING, SENDING_TO, SENDING),
    *(SESSION, GROUP, *ABOUT, HANDLING),
    *SETTING,
)
#: Sessions that a guest may have until it is looked which have ended.
_FEW_SESSIONS: Final = 64
#: Programs that may be remembered until it is looked which have ended: more than there may be.
_MANY_PROGRAMS: Final = 8_192


def build(arch: Arch, grants: Grants) -> seccomp.Program:
    """Compile the filter that stops the gate's calls.

    It knows no process id: a fork of a sandbox is under the filter of the guest that it is a copy
    of, which would let it name that guest as itself.
    """
    return seccomp.assemble(list(_filter(arch, grants)))


def _filter(arch: Arch, grants: Grants) -> Iterator[seccomp.Item]:
    numbers = arch.numbers
    yield Op(seccomp.LD_W_ABS, seccomp.OFFSET_ARCH)
    yield Op(seccomp.JEQ, arch.audit, no="pass")  # the main filter refuses what is foreign
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
    """Return the calls that are stopped whatever their arguments are."""
    stopped: tuple[str, ...] = (*STARTING, LOCKING, SESSION)
    stopped += REACHING if grants.network else ()
    stopped += (EXECUTING, GROUP) if grants.subprocess else ()
    stopped += SETTING if grants.attributes else ()
    return (*stopped, *SIGNALLING)


def _requesting(families: Iterable[str]) -> Iterator[seccomp.Item]:
    """Stop the requests with which a device begins to be used; the main filter decides on all."""
    yield Label("request")
    for family in sorted(families):
        for bits, values in BEGINS_USE[family]:
            yield Op(seccomp.LD_W_ABS, seccomp.low(_REQUEST))
            yield Op(seccomp.AND, bits)
            for value in values:
                yield Op(seccomp.JEQ, value, yes="stop")
    yield Op(seccomp.JA, yes="pass")


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


def install(arch: Arch, pid: int, grants: Grants, hand_over: Callable[[int], None]) -> None:
    """Put this thread under the gate and give the listener away. Raises OSError, LockFailed.

    From here on the gate's calls wait for an answer; the descriptor is closed here, since
    whoever holds it decides.
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
    """A Landlock ruleset that process ``pid`` is to ask for; ``fd`` is closed when it is laid.

    Before, whatever else is in its guest's sessions is ended, if it is to be ``alone``; after, the
    ``limits`` are set that no gate keeps, and ``done`` is called just before the one thread goes
    on, restricted.
    """

    pid: int
    fd: int
    limits: Limits
    done: Callable[[], None]
    alone: bool = True


class Allowance:
    """How much a session may still take of something that it shares with other programs.

    The gate can't know what a session gives back. So the allowance grows with time, up to ``most``.
    """

    def __init__(self, most: int) -> None:
        self._most, self._left, self._counted = most, float(most), time.monotonic()

    def take(self) -> bool:
        """Take one; return False if there is none left."""
        now = time.monotonic()
        more = (now - self._counted) * self._most / REGROWN
        self._left, self._counted = min(self._most, self._left + more), now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Allowances:
    """An allowance for each user of a guest's sessions: none takes what is another's."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._of = dict[int, Allowance]()

    def take(self, user: int) -> bool:
        """Take one for a user; return False if it has none left."""
        if user not in self._of:
            self._of[user] = Allowance(self._most)
        return self._of[user].take()


class Sessions:
    """The sessions (setsid(2)) that one guest, its copies and what they started are in.

    The first is the fork's own. A program begins others, and tells nobody: so that is stopped at
    the gate, and its number is here before there is such a session. ``tell`` is called with all of
    them when one is new.

    Each has a ``user``, a number of the host's: a sandbox, or a fork of it. The first session's is
    given here, and a fork's session is the fork's. One that a program begins has the user of the
    session in which the program was.
    """

    def __init__(
        self,
        first: int | None = None,
        tell: Callable[[dict[int, int]], object] = bool,
        user: int = 0,
    ) -> None:
        #: One number, or none where it has yet to be known or has ended.
        self.first = frozenset() if first is None else frozenset({first})
        self._user = user
        #: The user of each session.
        self._users = dict.fromkeys(self.first, user)
        #: Users that set no modes, owners and times.
        self._without_attributes = set[int]()
        self._tell = tell
        #: How many there may be until those are forgotten that have ended.
        self._most = _FEW_SESSIONS

    def __contains__(self, number: int) -> bool:
        return number in self._users

    def __iter__(self) -> Iterator[int]:
        return iter(self._users)

    def user_of(self, number: int) -> int:
        """Return whose a session is; the first user's is what is not known."""
        return self._users.get(number, self._user)

    def user_of_task(self, task: int) -> int:
        """Return whose a task is: the session's that it is in."""
        return self.user_of(session(task))

    def begin(self, number: int, user: int) -> None:
        """Record that process ``number`` is let begin a session, which is a ``user``'s."""
        if self._users.get(number) == user:
            return
        if not self.may_set_attributes(number):  # a fork of one that may not
            self._without_attributes.add(user)
        self._users[number] = user
        if len(self._users) > self._most:
            # A process that was let begin one may not have done so yet.
            alive = {number for process in everybody() for number in process}
            for ended in self._users.keys() - alive:
                self.forget(ended)
            self._most = max(_FEW_SESSIONS, 2 * len(self._users))
        self._tell(dict(self._users))

    def take_attributes(self, number: int) -> None:
        """Let the user of a session set no modes, owners and times any more."""
        self._without_attributes.add(self.user_of(number))

    def may_set_attributes(self, task: int) -> bool:
        """Return whether a task's user may set modes, owners and times."""
        # Mostly there is none that may not, and nobody looks at the task.
        taken = self._without_attributes
        return not taken or self.user_of_task(task) not in taken

    def forget(self, number: int) -> None:
        """Record that nothing is in a session any more: another guest's process has its number."""
        self._users.pop(number, None)
        self.first -= {number}


class Starts:
    """The starts that were let through, and whose tasks a count may not find yet.

    How long a start takes is up to who makes it: a fork copies many mappings as slowly as a process
    runs that others keep from running. So no time ends one. It is over when its task has ended, or
    makes another call that is stopped, or waits for something, as Linux does nowhere on the way to
    a new task; and a start of a thread also when its process has all the threads that it was let
    start. Every task has one start at most here.
    """

    def __init__(self) -> None:
        #: By task: its process, and whether it starts a thread.
        self._pending: dict[int, tuple[int, bool]] = {}
        #: Threads that a process has when all of its starts of threads that are here are over. It
        #: has fewer if one of them failed, or a thread has ended since the first of them.
        self._expected: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, task: int, process_id: int, threads: int, *, is_thread: bool) -> None:
        """Record that a task is let start another; its process has so many threads."""
        if is_thread:
            before = self._expected.get(process_id, threads)
            self._expected[process_id] = before + 1
        self._pending[task] = process_id, is_thread

    def end(self, task: int) -> None:
        """Record that a task makes another call."""
        if self._pending.pop(task, None) is not None:
            self._forget_processes()

    def look(self) -> None:
        """Forget those that are over: whoever counts after this finds what they started."""
        complete = {pid for pid, most in self._expected.items() if thread_count(pid) >= most}
        for task, (process_id, is_thread) in tuple(self._pending.items()):
            if (is_thread and process_id in complete) or not _may_be_starting(task):
                del self._pending[task]
        self._forget_processes()

    def _forget_processes(self) -> None:
        starting = {process_id for process_id, is_thread in self._pending.values() if is_thread}
        self._expected = {pid: most for pid, most in self._expected.items() if pid in starting}


class Gate:
    """The zygote's end of one guest's gate: call ``answer()`` when the listener is readable.

    ``plan`` is the policy's by now: how many threads and processes there may be together, whether
    programs may be started, whether there is a network. ``sessions`` are those of the guest.
    ``use`` is called with a guest or a copy that has taken over when it first asks a device
    something: it is not copied from then on.
    """

    def __init__(
        self,
        listener: int,
        arch: Arch,
        plan: Plan,
        sessions: Sessions,
        use: Callable[[int], object] = bool,
    ) -> None:
        self._listener, self._audit, self.plan = listener, arch.audit, plan
        self._sessions = sessions
        self._use = use
        #: Guests that use a device: nobody else knows what is in it, so no copy would have it.
        self._users_of_devices = set[int]()
        #: Processes that were let execute a program, which the guest and its snapshots are not.
        #: Each with its image at that moment, or None where it may share its memory since.
        self._programs: dict[int, _Image | None] = {}
        #: Groups of programs when they were last looked for, each with its session, and until when
        #: that counts.
        self._groups: tuple[dict[int, int], float] = {}, 0.0
        self._names = {arch.numbers.get(name, -1): name for name in _STOPPED}
        #: By the process that is to ask for it.
        self._due_rulesets: dict[int, DueRuleset] = {}
        self._due_forks: list[int | None] = []
        #: Snapshots that are to begin a session: forks of a sandbox.
        self._due_sessions = set[int]()
        #: Snapshots, which no cell signals: a pidfd of each, by its number.
        self._protected: dict[int, int] = {}
        self._starts = Starts()
        #: What may yet be added to epolls, and ports that may yet be taken.
        self._watches, self._ports = Allowances(WATCHES), Allowances(PORTS)
        #: The user whose call was taken up last.
        self.asking = 0

    def close(self) -> None:
        """Close the listener: calls that are stopped, and all that come, fail with ENOSYS."""
        os.close(self._listener)
        for pidfd in self._protected.values():
            os.close(pidfd)

    def protect(self, pid: int) -> None:
        """Let nobody signal a snapshot, which a guest that starts programs has among its own."""
        for known in tuple(self._protected):
            self._is_protected(known)
        if pid not in self._protected:
            self._users_of_devices.discard(pid)  # an earlier process of this number
            with contextlib.suppress(OSError):  # it is gone
                self._protected[pid] = os.pidfd_open(pid)

    def _is_protected(self, pid: int) -> bool:
        """Return whether a number is a snapshot's, and forget it once that has ended."""
        pidfd = self._protected.get(pid)
        if pidfd is None:
            return False
        if not is_readable(pidfd):
            return True
        os.close(self._protected.pop(pid))
        return False

    def expect_ruleset(self, due: DueRuleset) -> None:
        """Lay one more ruleset on a process when it asks for that; it starts nothing before.

        Nor does any other, if that is to be alone.
        """
        self._withdraw_rulesets(None if due.alone else due.pid)
        self._due_rulesets[due.pid] = due
        if due.alone:
            self._due_forks.clear()

    def _withdraw_rulesets(self, pid: int | None) -> None:
        """Have those be due no more that are due on a process, or alone; on any for None."""
        for due in tuple(self._due_rulesets.values()):
            if due.alone or pid in {due.pid, None}:
                os.close(self._due_rulesets.pop(due.pid).fd)

    def allow_fork(self, pid: int | None) -> None:
        """Let the next fork of ``pid`` through, or of whoever asks: a snapshot is due.

        No ruleset is due on it any more.
        """
        self._withdraw_rulesets(pid)
        self._due_forks.append(pid)

    def allow_session(self, pid: int) -> None:
        """Let a snapshot begin a session, once: it is to be a fork of a sandbox."""
        self._due_sessions.add(pid)

    def withdraw_fork(self, but: Collection[int] = ()) -> None:
        """Take ``allow_fork`` back, ``but`` for these: no snapshot is wanted any more."""
        self._due_forks = [pid for pid in self._due_forks if pid in but]

    def answer(self, before: Callable[[], None] = lambda: None) -> bool:
        """Decide one stopped call. Return False when the guest is gone.

        ``before`` is called when it was taken up, before it is decided.
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
        refusal = errno.EPERM  # of one that the gate does not know (never expected)
        if name == HANDLING and audit == self._audit:
            self._have_restarted(ident, task, args[_ACTION])
            refusal = 0
        elif name is not None and audit == self._audit:
            # Process ids and clone's flags are 32 bits wide to the OS kernel.
            words = tuple(arg & 0xFFFFFFFF for arg in args)
            refusal = self.decide(Request(ident, task, name, words))
        response = _RESPONSE.pack(ident, 0, -refusal, 0 if refusal else CONTINUE)
        with contextlib.suppress(FileNotFoundError):  # its task was killed meanwhile
            self._ioctl(NOTIF_SEND, response)
        return True

    def _ioctl(self, operation: int, data: bytes) -> None:
        """Call ioctl(2) on the listener, again while the end of a child interrupts it."""
        while True:
            with contextlib.suppress(InterruptedError):
                fcntl.ioctl(self._listener, operation, data)
                return

    def _have_restarted(self, ident: int, task: int, address: int) -> None:
        """Have calls of a shell restarted that the end of a child interrupts.

        A signal interrupts a stopped call until it is taken up here. If its handler does not
        restart calls (SA_RESTART), a fork fails with EINTR, which no fork does elsewhere: dash and
        busybox then end a pipeline with "Cannot fork". Their handlers are known by blocking every
        signal. Other programs block signals around a fork, or have calls restarted.

        Nothing is decided by what is read here, and only the caller's own memory is written. It is
        left alone if another process may have it, too, or if a file is mapped there: another
        process could keep the memory locked, or the file, and the zygote waiting.
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
                # Still the caller's number: another gets it only once all others were given.
                self._ioctl(NOTIF_ID_VALID, _WORD.pack(ident))
                write_memory(task, address + _SIGACTION_FLAGS, _WORD.pack(flags | SA_RESTART))

    def _has_own_memory(self, process_id: int) -> bool:
        """Return whether no other process has the memory of this one, whose one thread has called.

        A program that began gave the process a memory of its own, and since then the process has
        started none that shares it. It is not asked with kcmp(2), nor anything of other processes:
        see ``_image_of``. Raises OSError when the process is gone.
        """
        before = self._programs.get(process_id)
        if before is None:
            return False
        now = _image_of(process_id)
        return now.began == before.began and now.stack != before.stack

    def decide(self, request: Request) -> int:
        """Return 0 to let the call go on, or the errno it fails with."""
        try:
            return self._decide(request)
        except (OSError, LockFailed):  # its task is gone, or can't be looked at
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
        """Have no copy made of a guest that begins to use a device, from here on.

        Only a guest is copied: what programs have open, which it started, ends with it.
        """
        if process_id not in self._users_of_devices and self._is_guest(process_id):
            self._users_of_devices.add(process_id)
            self._use(process_id)

    def _may(self, request: Request, process_id: int, threads: int) -> bool:
        """Return whether a process may do what concerns it, and what it started, alone."""
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
        """Return whether a process may be put in a group.

        The guest and its snapshots stay in theirs, which nobody signals, and nobody who has left it
        comes back: a process that names its own group in ``kill`` could be put there after it was
        looked which that is.
        """
        return not self._is_guest(target) and not self._is_guests_group(group)

    def _is_guests_group(self, group: int) -> bool:
        """Return whether a guest or a snapshot is in a group."""
        guests = (pid for pid in tuple(self._protected) if self._is_protected(pid))
        return group in self._sessions.first or group in map(_group, guests)

    def _is_guest(self, pid: int) -> bool:
        """Return whether a process is the guest, a snapshot, or one that has taken over."""
        return pid in self._sessions.first or self._is_protected(pid)

    def _may_execute(self, process_id: int, threads: int) -> bool:
        """Return whether a process may execute a program, and remember its image until then.

        The guest and its snapshots may not: who reads what they take would wait meanwhile (see
        ``_image_of``), and nothing would be left of them.
        """
        if not self.plan.subprocess or self._is_guest(process_id):
            return False
        self._programs[process_id] = _image_of(process_id) if threads == 1 else None
        if len(self._programs) > _MANY_PROGRAMS:
            living = {pid for pid, _ in everybody()}
            self._programs = {pid: at for pid, at in self._programs.items() if pid in living}
        return True

    def _begin_session(self, process_id: int) -> bool:
        """Record the session that a process is about to begin; its number is the process's.

        A guest leads its session already. A snapshot that took over does not, and could leave,
        unless it is to be a fork's guest: the host has said whose the session is then.
        """
        if process_id in self._due_sessions:
            self._due_sessions.remove(process_id)
            return True
        if not self.plan.subprocess or self._is_guest(process_id):
            return False
        self._sessions.begin(process_id, self._sessions.user_of_task(process_id))
        return True

    def _may_name(self, call: str, target: int, process_id: int) -> bool:
        """Return whether a process may name this one, or this group, in a call.

        Itself, what it has started, and any program in a session of its user's: one cell's
        ``kill`` ends what another has started, which may be an orphan by now. A group where that is
        in a session of its user's, unless the guest or a snapshot is in it: who ends that ends
        the guest. Nothing of another user's, whoever started it: a limit ends a process as well as
        a signal does.
        """
        user = self._sessions.user_of_task(process_id)
        if call == "kill" and target <= 0:
            group = -target or _group(process_id)
            return self.plan.subprocess and self._is_of_programs(group, user)
        if call in ABOUT:  # these take threads' ids, too
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
        """Return all groups in sessions of the guest's, those without a leader, too, by number.

        With each is its session: a group lies in one.

        That takes long where there are many processes, and all calls wait for it: it is remembered
        for ten times as long. No group's number is another's so soon: there are 32,768 at least.
        """
        groups, until = self._groups
        if (began := time.monotonic()) >= until:
            found = ((pid, session(pid)) for pid in descendants(os.getpid()))
            groups = {_group(pid): number for pid, number in found if number in self._sessions}
            groups.pop(-1, None)
            ended = time.monotonic()
            self._groups = groups, ended + _REMEMBERED * (ended - began)
        return groups

    def _reach(self, request: Request) -> int:
        if request.call in TAKING_PORTS:
            user = self._sessions.user_of_task(request.task)
            return 0 if self._ports.take(user) else errno.EADDRINUSE
        if request.call == MAKING_SOCKETS and self.plan.loopback and _is_udp(request.args):
            return 0 if _sockets(request.task) < MOST_SOCKETS else errno.ENOBUFS
        return 0

    def _start(self, request: Request, process_id: int) -> int:
        is_due = self._is_due(request, process_id)
        if not self._may_start(request, process_id, is_due=is_due):
            return errno.EPERM
        most = self.plan.limits.max_processes
        if most is None or is_due:  # a session at its limit is to be restored all the same
            return 0
        self._starts.look()
        threads = thread_count(process_id)  # not those of before that look
        if self._count(threads) >= most:
            return errno.EAGAIN
        is_thread = request.call == "clone" and bool(request.args[0] & CLONE_THREAD)
        self._starts.add(request.task, process_id, threads, is_thread=is_thread)
        return 0

    def _may_start(self, request: Request, process_id: int, *, is_due: bool) -> bool:
        flags = request.args[0] if request.call == "clone" else 0
        due_rulesets = self._due_rulesets.values()
        if process_id in self._due_rulesets or any(due.alone for due in due_rulesets):
            return False
        shares = request.call == "vfork" or (flags & CLONE_VM and not flags & CLONE_THREAD)
        if shares and process_id in self._programs:  # a guest is no program, whatever it starts
            self._programs[process_id] = None
        if flags & CLONE_THREAD or self.plan.subprocess:
            return not flags & CLONE_NEVER
        return is_due

    def _is_due(self, request: Request, process_id: int) -> bool:
        """Return whether this makes a snapshot, which is due no more then.

        Snapshots are the main thread's; whatever other thread asks is a cell's. So is what the
        guest asks when it is a snapshot that is to fork.
        """
        flags = request.args[0] if request.call == "clone" else 0
        due = [pid for pid in self._due_forks if pid in {process_id, None}]
        if request.task != process_id or flags & CLONE_SHARED or not due:
            return False
        if process_id in self._users_of_devices:
            return False
        # One that is due for anybody is left for a process that has none of its own.
        self._due_forks.remove(process_id if process_id in due else None)
        return True

    def _count(self, threads: int) -> int:
        """Count the guest's tasks, those that were let through and may not have begun included.

        ``threads`` are those of the process that asks.
        """
        if self.plan.subprocess:
            # A guest and what it started; orphans came back to us, a subreaper. Who descends from
            # one that ends meanwhile may be missed: then there is room for one more, by that end.
            pids = [pid for pid in descendants(os.getpid()) if session(pid) in self._sessions]
            threads = sum(map(thread_count, pids))
            # A snapshot has one thread, which counts for nothing. Those that it starts once it has
            # taken over do count.
            threads -= sum(map(self._is_protected, pids))
        return threads + len(self._starts)

    def _lay_ruleset(self, request: Request, process_id: int, threads: int) -> bool:
        """Lay the ruleset that is due on the process it is due on; return whether that asks.

        The one thread that there is stands still, nobody else has its descriptors, and the number
        that it names is the ruleset's from here on: what it does next is to be restricted.
        """
        due, (number, flags, *_) = self._due_rulesets.get(process_id), request.args
        if due is None or threads != 1 or request.task != process_id:
            return False
        if flags:  # some make it fail
            return False
        del self._due_rulesets[process_id]
        try:
            if due.alone:
                end_sessions(self._sessions, keep=(due.pid,))
            added = _ADDFD.pack(request.id, ADDFD_SETFD, due.fd, number, os.O_CLOEXEC)
            self._ioctl(NOTIF_ADDFD, added)
        finally:
            os.close(due.fd)
        if not due.alone:  # a fork, which writes in its own folder alone
            self._sessions.take_attributes(process_id)
        # Not before: a limit on open files would keep the number from being used.
        process.lower_limits(due.pid, due.limits)
        due.done()
        return True


# Processes, as /proc has them.

#: Of a task's status: its process, and how many threads that has.
_STATUS: Final = re.compile(rb"^Tgid:\s*(\d+)$.*^Threads:\s*(\d+)$", re.DOTALL | re.MULTILINE)
#: Its parent. Not by /proc/PID/stat: see ``_image_of``.
_PARENT: Final = re.compile(rb"^PPid:\t(\d+)$", re.MULTILINE)
#: And what it does. Who waits for something, is stopped or has ended is on the way to no new task:
#: there a task runs, or waits as for a disk (proc(5), "D").
_WAITS: Final = re.compile(rb"^State:\s*[STtZXx]\b", re.MULTILINE)
_READ: Final = 1 << 14
#: How many times as long as a look for groups took it is remembered.
_REMEMBERED: Final = 10
#: The largest number of a process (proc(5), pid_max), and processes between two that are related:
#: more than a preset lets a guest have.
_LARGEST: Final = 2**22
_DEEPEST: Final = 1_024
#: Looks for who descends from whom, each of which somebody's end may cut short.
_LOOKS: Final = 16
#: Seconds that processes have to end in, and between two looks at them.
_TIMEOUT, _PAUSE = 10.0, 0.001


def _process_of(task: int) -> tuple[int, int]:
    """Return a task's process and how many threads that has. Raises OSError when it is gone."""
    found = _STATUS.search(_read(f"/proc/{task}/status"))
    if found is None:
        raise ProcessLookupError(task)
    return int(found[1]), int(found[2])


class _Image(NamedTuple):
    """Tells one memory of a process from that of the program it executes next (proc(5), stat)."""

    #: When the process was started: another may have its number later.
    began: int
    #: Where its stack begins, which is elsewhere in each new memory; 0 if the program can't be
    #: read.
    stack: int


def _image_of(process_id: int) -> _Image:
    """Return the image of a process whose one thread is stopped. Raises OSError when it is gone.

    Ask it of no other. A process that executes a program holds a lock (``exec_update_lock``) until
    the memory that it had is freed, half a minute if others keep it from the processor, and who
    reads its /proc/PID/stat, maps or mem, or calls kcmp(2), waits as long.
    """
    fields = _read(f"/proc/{process_id}/stat").rpartition(b") ")[2].split()
    return _Image(began=int(fields[19]), stack=int(fields[25]))


def _may_be_starting(task: int) -> bool:
    """Return whether a task that was let start another may still be about it."""
    try:
        return _WAITS.search(_read(f"/proc/{task}/status")) is None
    except OSError:
        return False


def _signed(number: int) -> int:
    """Return 32 bits as the OS kernel takes a process id."""
    return number - (1 << 32) if number & 0x8000_0000 else number


def thread_count(pid: int) -> int:
    """Return how many threads a process has, 0 when it is gone."""
    try:
        return _process_of(pid)[1]
    except OSError:
        return 0


def session(pid: int) -> int:
    """Return a process's session, -1 when it is gone."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return -1


def _group(pid: int) -> int:
    """Return a process's group, -1 when it is gone."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return -1


def descends(pid: int, ancestor: int) -> bool:
    """Return whether a process was started by ``ancestor``, or by one that was.

    It looks from below, so that it takes no longer the more processes there are. Whoever ends on
    the way hands its children over, so that the look begins again.
    """
    if not 0 < pid <= _LARGEST:  # a group, or no process
        return False
    looks = (_looks_up(pid, ancestor) for _ in range(_LOOKS))
    return next((found for found in looks if found is not None), False)


def _looks_up(pid: int, ancestor: int) -> bool | None:
    """Do what ``descends`` says; return None where an ancestor has ended meanwhile."""
    lowest = pid
    for _ in range(_DEEPEST):
        try:
            found = _PARENT.search(_read(f"/proc/{pid}/status"))
        except OSError:
            found = None
        if found is None:
            return False if pid == lowest else None
        pid = int(found[1])
        if pid == ancestor:
            return True
        if pid <= 1:
            return False
    return False


def descendants(pid: int) -> Iterator[int]:
    """Yield the children of all of a process's threads, and theirs, as far as they can be read."""
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        if parent != pid:
            yield parent
        # Any of its threads may end while we look.
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{parent}/task"):
                with contextlib.suppress(OSError):
                    waiting += map(int, _read(f"/proc/{parent}/task/{task}/children").split())


def everybody() -> Iterator[tuple[int, int]]:
    """Yield every process that there is and its session, -1 where it is gone: all of /proc, twice.

    Below whom a process lies is not asked: whoever dies hands its children over meanwhile. One that
    is made during a look may not be in it, but whoever made it was; unless that ended during this
    look, and then the child is in the next. No call that starts another passes the gate meanwhile.
    """
    for _ in range(2):
        for name in os.listdir("/proc"):
            if name.isdecimal():
                yield int(name), session(int(name))


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


def _most_watches() -> int:
    """Return what Linux lets all of a user's epolls watch: some 200 bytes each (epoll(7))."""
    try:
        return int(_read("/proc/sys/fs/epoll/max_user_watches"))
    except (OSError, ValueError):
        return 400_000  # of a machine with 2 GiB


#: What may be added to epolls, and ports that may be taken, at once: a quarter of what there is. Of
#: ports that is what Linux gives to whoever names none (ip(7), ip_local_port_range).
WATCHES: Final = _most_watches() // 4
PORTS: Final = 28_232 // 4
#: Seconds in which an allowance grows from nothing to all: room for honest servers, and hours until
#: others lack any.
REGROWN: Final = 2_500


#: Sockets of a session's own network, of all kinds, with which no more is made for UDP. So there
#: are never more for UDP, whoever closes what, of which the gate hears nothing. Each holds 208 KiB
#: of datagrams and one more, which count for no process, of what all programs share (udp(7),
#: udp_mem): when that is short, every program loses datagrams.
MOST_SOCKETS: Final = 512
_IN_USE: Final = re.compile(rb"^sockets: used (\d+)$", re.MULTILINE)
_TYPE: Final = 0xF


def _is_udp(args: tuple[int, ...]) -> bool:
    """Return whether the arguments of socket(2) are those of one for UDP."""
    return args[0] in {socket.AF_INET, socket.AF_INET6} and args[1] & _TYPE == socket.SOCK_DGRAM


def _sockets(task: int) -> int:
    """Return how many sockets there are in a task's network. Raises OSError."""
    found = _IN_USE.search(_read(f"/proc/{task}/net/sockstat"))
    return int(found[1]) if found else MOST_SOCKETS


def end_sessions(sessions: Sessions, keep: tuple[int, ...], user: int | None = None) -> None:
    """Kill what is in a guest's sessions and not to be kept, or in a user's. Raises LockFailed.

    It is done when a look finds nobody who was not killed before: what one had begun to start may
    come after it was looked at. Nobody is waited for until they are gone. Whoever was sent SIGKILL
    runs no instruction of their own any more, and starts nothing, but a call of the OS kernel that
    no signal ends can keep them for minutes (to free a file of many pieces), and whoever waits
    here for the zygote would take a snapshot that is to serve for one that does not.

    No session is begun while the zygote is here.
    """
    deadline, killed = time.monotonic() + _TIMEOUT, set[int]()
    # Against the look before, not all: whoever was not in that one has a number that was free.
    while (found := _kill_all(sessions, keep, user)) - killed:
        killed = found
        if time.monotonic() > deadline:
            raise LockFailed("what a cell has started goes on starting more")
        time.sleep(_PAUSE)


def _kill_all(sessions: Sessions, keep: tuple[int, ...], user: int | None) -> set[int]:
    """Kill all in these sessions, but for ``keep``; return those that live still."""
    others = (pid for pid, _ in everybody() if pid not in keep)
    return {pid for pid in others if _kill_in_session(sessions, pid, user)}


def _is_in(sessions: Sessions, pid: int, user: int | None) -> bool:
    """Return whether a process is in one of these sessions, of which only a user's may be meant.

    Any may have ended, the first too once a fork's guest has taken over, and its number be that of
    a stranger's: who is in it is ours only if we are its ancestor.
    """
    number = session(pid)
    if user is not None and sessions.user_of(number) != user:
        return False
    return number in sessions and descends(pid, os.getpid())


def _kill_in_session(sessions: Sessions, pid: int, user: int | None) -> bool:
    """Kill a process if it is in one of these sessions; return whether it was, and lives."""
    if not _is_in(sessions, pid, user):
        return False
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # Looked at again: the number may have become another's before there was a descriptor.
        if is_readable(fd) or not _is_in(sessions, pid, user):
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # gone, or nobody of ours
        return False
    finally:
        os.close(fd)
    return True
