"""The host's end of a zygote: its control socket, the guests forked from it, and its end.

- ``Pids`` translates pids, if the zygote is in a pid namespace of its own.
- ``Zygote`` is one zygote. Its users, which are supervisors, hear what it reports.
- ``ZygoteSource`` provides a supervisor with zygotes: with its own (a kernel), or with a share in
  one (sandboxes of a pool, by ``SharedZygote``).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import select
import signal
import socket
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from msgspec.structs import replace

from cellblock.descriptors import identity, make_usable
from cellblock.host.guests.process import Lineage
from cellblock.host.limits.shared_memory import SharedMemory
from cellblock.wire import frames, messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cellblock.host.guests.process import Guest
    from cellblock.host.guests.spare import SpareGuest
    from cellblock.host.reactor import Reactor, Timer

    Spawn = Callable[[], tuple[socket.socket, int]]


# --- numbers of processes ---------------------------------------------------------------------

#: Stands for a process that is gone. No process has this pid or a greater one (proc(5), pid_max),
#: so signals to it have no effect.
NO_PROCESS: Final = 2**22
#: Finds the pid in the fdinfo of a pidfd. ``Pid`` is -1 if the process was waited for, and 0 if it
#: is not in a namespace below ours.
_PID_OF_PIDFD: Final = re.compile(rb"^Pid:\t([1-9]\d*)$", re.MULTILINE)
#: Finds the innermost of a process's pids in its status, which lists them from our namespace
#: inwards.
_PID_IN_NAMESPACE: Final = re.compile(rb"^NSpid:\t.*?(\d+)$", re.MULTILINE)
_MAX_READ: Final = 4096


class Pids:
    """The pids of guests, as the host and the zygote know them.

    If the zygote is in a pid ``namespace`` of its own, the same number means two processes. Then
    pids are translated here, and only here, as they cross the control socket; all of the host uses
    the host's pids. A pidfd means the same process on either side, and the OS kernel says which pid
    that has on both (proc(5)), so no other process has to be believed. Without a namespace the pids
    are the same.
    """

    def __init__(self, *, namespace: bool) -> None:
        self._namespace = namespace
        #: The host's pid of each guest that serves or will, by the zygote's pid.
        self._outside: dict[int, int] = {}

    def forked(self, pid: int, pidfd: int | None) -> int:
        """Return the host's pid of a fork; NO_PROCESS if it has ended or can't be known."""
        if not self._namespace:
            return pid
        match = _PID_OF_PIDFD.search(_read(f"/proc/self/fdinfo/{pidfd}"))
        self._outside[pid] = int(match[1]) if match else NO_PROCESS
        return self._outside[pid]

    def serves(self, pid: int) -> None:
        """Record a copy that will serve: the zygote will report its end by the zygote's pid."""
        if self._namespace and (inside := self.inside(pid)) != NO_PROCESS:
            self._outside[inside] = pid

    def reaped(self, pid: int) -> int:
        """Return the host's pid of a process that ended.

        For a process that was never recorded this is a number that no process has.
        """
        return self._outside.pop(pid, NO_PROCESS + 1) if self._namespace else pid

    def inside(self, pid: int) -> int:
        """Return the zygote's pid of a process; NO_PROCESS if the process is gone."""
        if not self._namespace:
            return pid
        match = _PID_IN_NAMESPACE.search(_read(f"/proc/{pid}/status"))
        return int(match[1]) if match else NO_PROCESS


def _read(path: str) -> bytes:
    with contextlib.suppress(OSError), open(path, "rb", buffering=0) as file:
        return file.read(_MAX_READ)
    return b""  # the process is gone


# --- a zygote ---------------------------------------------------------------------------------

READ_SIZE = 1 << 16
#: Descriptors that one read takes: a pidfd comes with each ``Forked``.
_DESCRIPTORS = 16
#: Reads of the control socket in a row, so that other events get their turn.
_MAX_READS = 64
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
#: Seconds that a zygote has to kill its guests.
PATIENCE = 2.0
#: Seconds that its reaper has to do so instead. It may have to wait for hundreds of processes.
ENDING = 10.0
#: Seconds that the host waits while the zygote removes the guests' folder. After that the zygote
#: goes on alone, as it does if the user loses patience and kills the host.
REMOVAL = 30.0
#: Seconds between two looks at whether the zygote has taken up what it was sent, and the number of
#: looks after which it counts as hanging. That is longer than ending a session takes
#: (``notify.end_sessions``). Looks are counted instead of seconds, because a host that was stopped
#: for a while has not listened.
LOOK: Final = 1.0
LOOKS: Final = 15
#: The number of looks until it must be able to fork guests. Before that it imports what the policy
#: names, perhaps from a slow disk.
LOOKS_AT_START: Final = 300
#: The reasons for a lost zygote that users see.
ENDED: Final = "its zygote ended"
HUNG: Final = "its zygote did not answer and was ended"
#: All control sockets of this program. A fork of the program closes them: a zygote ends when the
#: other end of its control socket is closed everywhere.
_SOCKETS: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _close_all() -> None:
    for sock in _SOCKETS:
        sock.close()


os.register_at_fork(after_in_child=_close_all)


class ZygoteUser(Protocol):
    """A user of a zygote, which has guests forked from it."""

    def on_zygote(self, message: messages.FromZygote) -> None:
        """Act on a message of the zygote: a process ended, locks are ready, or a fork failed."""

    def on_zygote_lost(self, why: str) -> None:
        """Act on the end of the zygote, and of all its guests with it."""


class Zygote:
    """One zygote, whose ``users`` hear its messages. Raises OSError if it can't be started.

    The zygote is sent ``prepare`` first, which all its users share. It must report in time that it
    has taken up each message (``messages.Obeyed``). A zygote that hangs is killed with all that it
    started, and its users hear that it is lost.

    ``pid`` is the pid of the zygote's reaper. If the zygote has a pid namespace of its own, ``pid``
    is the pid of a process outside that namespace: when it or the zygote ends, so does the other.
    """

    def __init__(self, reactor: Reactor, spawn: Spawn, prepare: messages.Prepare) -> None:
        self._reactor = reactor
        # Cells may have taken away rights in their own folder, without which nothing begins there.
        with contextlib.suppress(OSError):
            make_usable(prepare.scratch)
        self._sock, self.pid = spawn()
        _SOCKETS.add(self._sock)
        self.users: list[ZygoteUser] = []
        self._namespace = "namespaces" in prepare.plan.locks
        self._pids = Pids(namespace=self._namespace)
        self._splitter = frames.Splitter()
        self._decode: frames.Decoder[messages.FromZygote] = frames.Decoder(messages.FromZygote)
        self._pidfds: list[int] = []
        #: Descriptors of folders that look different to guests than to the host, by the guests'
        #: paths. They are closed before another zygote lays its layers, because two overlays at
        #: once would spoil the upper folder.
        self.seen_folders: dict[str, int] = {}
        #: The guests' /dev/shm, by the scratch folder of their session. If sessions have no mounts
        #: of their own, all share one, under the key "".
        self._shared_memory: dict[str, SharedMemory] = {}
        #: Descriptors of the sockets at which guests' connections to listed hosts arrive.
        self._neighbours = prepare.plan.neighbours
        self.listeners: dict[messages.Neighbour, int] = {}
        #: A socket in the guests' network, by which the host enters it; None unless the plan
        #: ``serves`` ports.
        self.network: int | None = None
        self._numbers = itertools.count(1)
        #: Guests whose pid the zygote has not reported yet, by the number of their fork.
        self._forks: dict[int, Guest] = {}
        #: The lineages of guests, by the number of their fork.
        self._lineages: dict[int, Lineage] = {}
        #: Callbacks for when all that descends from some forks has ended, by the message's number.
        self._on_forks_ended: dict[int, Callable[[], None]] = {}
        #: Callbacks that get why layers could not be refreshed, or "", by the message's number.
        self._on_refreshed: dict[int, Callable[[str], None]] = {}
        #: How many messages the zygote has not taken up yet; the first one was sent already.
        self._unobeyed = 1
        self._is_prepared = False
        #: How many times the oldest of these was looked at.
        self._looks = 0
        self._look_timer: Timer | None = None
        self._own_mounts = prepare.plan.own_mounts
        self._place = place_of(prepare)
        self._watch_oldest()
        reactor.watch(self._sock.fileno(), self.read_rest)
        _send_first(self._sock, first_frame(prepare))

    @property
    def closed(self) -> bool:
        """Whether the zygote has ended."""
        return self._sock.fileno() < 0

    # --- to the zygote ------------------------------------------------------------------------

    def _send(self, message: Any, fds: list[int] | None = None) -> None:
        _send(self._sock, message, fds)
        self._unobeyed += 1
        self._watch_oldest()

    def _watch_oldest(self) -> None:
        """Watch that the oldest message which the zygote has not taken up is taken up in time."""
        if self._look_timer is None and self._unobeyed and not self.closed:
            self._look_timer = self._reactor.call_later(LOOK, self._look)

    def _look(self) -> None:
        self._look_timer = None
        self.read_rest()  # the host may have been too busy to read the answer
        if self.closed or not self._unobeyed:
            return
        self._looks += 1
        if self._looks < (LOOKS if self._is_prepared else LOOKS_AT_START):
            self._watch_oldest()
        else:
            self._lose(HUNG)

    def _on_obeyed(self) -> None:
        self._is_prepared = True
        self._unobeyed -= 1
        self._looks = 0

    def _stop_looking(self) -> None:
        if self._look_timer is not None:
            self._look_timer.cancel()
            self._look_timer = None

    def fork(
        self,
        guest: Guest,
        *,
        place: messages.SessionSetup | None = None,
        trial: messages.Trial | None = None,
    ) -> None:
        """Ask the zygote to fork a guest. Its pid is known when the zygote reports ``Forked``.

        ``place`` is the set-up of the guest's session, by default the one for all guests. It waits
        on the guest's own channel, and the zygote never gets it, because only the guest reads it.
        """
        number = guest.lineage.number = next(self._numbers)
        self._forks[number] = guest
        place = place or self._place
        with contextlib.suppress(OSError):
            make_usable(place.scratch)
        guest.send(replace(place, seed=os.urandom(32)))
        mounts = guest.lineage.mounts = place.scratch if self._own_mounts else ""
        self._send(messages.Fork(id=number, trial=trial, mounts=mounts), guest.child_fds)
        guest.close_child_fds()

    def allow_fork(self, lineage: int, pid: int | None) -> None:
        """Have the gate let one fork of ``pid`` through: of a guest or a copy; None means any."""
        inside = None if pid is None else self._pids.inside(pid)
        self._send(messages.AllowFork(id=lineage, pid=inside))

    def protect(self, snapshot: Guest) -> None:
        """Forbid the guest's cells to signal a copy. They may signal only what they started.

        The zygote does so before it answers another call of the guest.
        """
        inside = self._pids.inside(snapshot.pid or NO_PROCESS)
        snapshot.lineage.uses_device.discard(inside)  # an earlier process had this pid
        self._send(messages.Protect(id=snapshot.lineage.number, pid=inside))

    def new_user(self) -> int:
        """Return the number for a fork of a sandbox, a new user of a lineage."""
        return next(self._numbers)

    def begin_session(self, guest: Guest, user: int) -> None:
        """Let a copy that will serve a ``user`` begin an OS session of that user's."""
        inside = self._pids.inside(guest.pid or NO_PROCESS)
        self._send(messages.BeginSession(id=guest.lineage.number, pid=inside, user=user))

    def keep_only(
        self, lineage: Lineage, user: int, pids: Iterable[int], other_pids: Iterable[int] = ()
    ) -> None:
        """Have all processes in a user's OS sessions killed, except these and ``other_pids``."""
        self._send(
            messages.KeepOnly(
                id=lineage.number,
                user=user,
                pids=tuple(map(self._pids.inside, pids)),
                others=tuple(map(self._pids.inside, other_pids)),
            )
        )

    def narrow(
        self, guest: Guest, plan: messages.Plan, ticket: int, *, rulesets: int, fork: bool = False
    ) -> None:
        """Have the locks of a narrower plan made for a copy; the zygote answers ``Narrowed``."""
        number = guest.lineage.number
        self._send(
            messages.Narrow(
                id=number,
                ticket=ticket,
                pid=self._pids.inside(guest.pid or NO_PROCESS),
                plan=plan,
                rulesets=rulesets,
                fork=fork,
            )
        )

    def serves(self, guest: Guest) -> None:
        """Record a copy that will serve, so that ``Reaped`` reports its end from now on."""
        if guest.pid is not None:
            self._pids.serves(guest.pid)

    def end_forks(self, forks: tuple[int, ...], on_left: Callable[[], None]) -> None:
        """Have all that descends from these forks ended; call ``on_left`` when that is done."""
        for number in forks:
            self._forks.pop(number, None)
            lineage = self._lineages.pop(number, None)
            mounts = lineage.mounts if lineage is not None else ""
            if mounts and (memory := self._shared_memory.pop(mounts, None)) is not None:
                memory.close()
        number = next(self._numbers)
        self._on_forks_ended[number] = on_left
        self._send(messages.EndForks(id=number, forks=forks))

    def shared_memory(self, lineage: Lineage) -> SharedMemory | None:
        """Return the /dev/shm of a guest and its copies, or None."""
        return self._shared_memory.get(lineage.mounts)

    def uses_device(self, guest: Guest) -> bool:
        """Return whether a guest has used a device, as far as the zygote's messages were read."""
        pids_with_device = guest.lineage.uses_device
        return (
            bool(pids_with_device)
            and self._pids.inside(guest.pid or NO_PROCESS) in pids_with_device
        )

    def refresh(self, done: Callable[[str], None]) -> None:
        """Have layers forget what they looked up; ``done`` is called with why that failed, or "".

        It is not called if the zygote is lost.
        """
        number = next(self._numbers)
        self._on_refreshed[number] = done
        self._send(messages.Refresh(id=number))

    def check(self) -> None:
        """Make sure that the zygote answers. If it hangs its users hear later that it is lost."""
        if not self._unobeyed:
            self._send(messages.Ping())

    # --- from the zygote ----------------------------------------------------------------------

    def read_rest(self) -> None:
        """Read and act on what the zygote has sent by now, without waiting for more.

        The event loop calls this, too. It polls first, because what made the socket readable may
        have been read by an earlier callback, and a read would then wait (``SENDING`` seconds).
        """
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        for _ in range(_MAX_READS):
            if self.closed or not poll.poll(0):
                return
            self._read()

    def _read(self) -> None:
        if data := self._receive():
            for payload in self._splitter.feed(data):
                self._take(self._decode(payload))
            return
        self._lose(ENDED)

    def _lose(self, why: str) -> None:
        """Kill what is left of the zygote, and tell its users."""
        self.kill()
        for user in tuple(self.users):
            user.on_zygote_lost(why)
        self._call_all_left()

    def _receive(self) -> bytes:
        try:
            data, pidfds, *_ = socket.recv_fds(self._sock, READ_SIZE, _DESCRIPTORS)
        except OSError:
            return b""
        for pidfd in pidfds:
            os.set_inheritable(pidfd, False)  # `recv_fds` can't pass MSG_CMSG_CLOEXEC
        self._pidfds += pidfds
        return data

    def _take(self, message: messages.FromZygote) -> None:
        match message:
            case messages.SeenFolder() | messages.Listening() | messages.OwnNetwork():
                self._take_descriptor(message)
            case messages.SharedMemory(scratch=scratch) if self._pidfds:
                self._shared_memory[scratch] = SharedMemory(self._pidfds.pop(0))
            case messages.ForkFailed():
                self._forks.pop(message.id, None)
                self._tell_users(message)
            case messages.Forked():
                self._on_forked(message, self._pidfds.pop(0) if self._pidfds else None)
            case messages.Sessions(id=number, sessions=sessions):
                self._lineages.get(number, Lineage()).sessions = sessions
            case messages.UsesDevice(id=number, pid=pid):
                self._lineages.get(number, Lineage()).uses_device.add(pid)
            case messages.ForksEnded(id=number):
                self._on_forks_ended.pop(number, _ignore)()
            case messages.Refreshed(id=number, failure=failure):
                self._on_refreshed.pop(number, _ignore)(failure)
            case messages.Obeyed():
                self._on_obeyed()
            case _:
                self._tell_users(message)

    def _take_descriptor(
        self, message: messages.SeenFolder | messages.Listening | messages.OwnNetwork
    ) -> None:
        """Keep the descriptor that came with a message. It may be missing if we have too many."""
        if not self._pidfds:
            return
        match message:
            case messages.SeenFolder(path=path):
                self.seen_folders[path] = self._pidfds.pop(0)
            case messages.Listening(number=number):
                self.listeners[self._neighbours[number]] = self._pidfds.pop(0)
            case messages.OwnNetwork():
                self.network = self._pidfds.pop(0)

    def _tell_users(self, message: messages.FromZygote) -> None:
        if isinstance(message, messages.Reaped):
            message = replace(message, pid=self._pids.reaped(message.pid))
        for user in tuple(self.users):
            user.on_zygote(message)

    def _on_forked(self, message: messages.Forked, pidfd: int | None) -> None:
        """Note which process a guest is."""
        guest = self._forks.pop(message.id, None)
        if self._namespace and pidfd is None:
            # We have no descriptors left, and without a pidfd the pid can't be translated: end the
            # guest.
            self._send(messages.KeepOnly(id=message.id, user=message.id, pids=()))
            return
        pid = self._pids.forked(message.pid, pidfd)
        if guest is None or guest.ended:  # the guest was replaced before its pid was known
            kill(pid, pidfd)
        else:
            guest.pid, guest.pidfd, guest.session = pid, pidfd, pid
            guest.lineage.session = pid
            guest.lineage.sessions = {**guest.lineage.sessions, message.pid: message.id}
            guest.lineage.namespace = self._namespace
            self._lineages[message.id] = guest.lineage

    def _call_all_left(self) -> None:
        leaving = self._on_forks_ended
        self._on_forks_ended = {}
        for on_left in leaving.values():
            on_left()

    # --- the zygote's end ---------------------------------------------------------------------

    def end(self) -> bool:
        """Have the zygote kill its guests, remove their folder and exit; return whether it did.

        A zygote that can't kill them in time is killed, which ends them too, and leaves the folder
        to the caller. If that takes too long as well, the folder is left to the reaper, or to
        whatever starts next: a guest that no signal ends may keep it locked. A zygote that only has
        much to remove goes on by itself.
        """
        self.hang_up()
        return self.wait()

    def hang_up(self) -> None:
        """Tell the zygote to end, and stop listening to it; ``wait`` blocks until it has ended."""
        self._stop_looking()
        with contextlib.suppress(OSError):
            self._reactor.unwatch(self._sock.fileno())
            self._sock.shutdown(socket.SHUT_WR)
        self._call_all_left()

    def wait(self) -> bool:
        """Wait for the end that ``hang_up`` began. May be called from any thread."""
        if self.closed:
            return True
        done = False
        if self._exited(PATIENCE, or_hung_up=True):
            done = self._exited(REMOVAL)
        else:
            # When the reaper has ended all guests have, and nobody uses the folder any more.
            done = not self._namespace and self._ended_by(signal.SIGTERM, ENDING)
            if not done:
                self.kill()
        self._release()
        return done

    def quit(self) -> bool:
        """Have the zygote kill its guests and exit, but leave their folder for the next zygote.

        Return False if it could not in time and was killed.
        """
        self._send(messages.Quit())
        if self._exited(PATIENCE):
            self._release()
            return True
        self.kill()
        return False

    def kill(self) -> bool:
        """Kill the zygote, and its guests with it; return whether it is gone."""
        # SIGTERM asks its reaper, if there is one, to kill the zygote and wait for its guests.
        asking = () if self._namespace else (signal.SIGTERM,)
        is_gone = any(self._ended_by(number) for number in (*asking, signal.SIGKILL))
        self._release()
        return is_gone

    def _ended_by(self, number: int, seconds: float = PATIENCE) -> bool:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
        return self._exited(seconds)

    def _exited(self, seconds: float, *, or_hung_up: bool = False) -> bool:
        """Wait until the zygote has exited; return whether it has.

        With ``or_hung_up`` this also returns True when the zygote has closed its end of the socket,
        which it does when its guests are gone.
        """
        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        poll = select.poll()
        deadline = time.monotonic() + seconds
        poll.register(fd, select.POLLIN)
        if or_hung_up:
            poll.register(self._sock, select.POLLIN)
        try:
            while (seconds_left := deadline - time.monotonic()) > 0:
                ready = [number for number, _ in poll.poll(seconds_left * 1000)]
                if fd in ready:
                    with contextlib.suppress(ChildProcessError):
                        os.waitpid(self.pid, 0)
                    return True
                if ready and not self._receive():
                    return True
        finally:
            os.close(fd)
        return False

    def _release(self) -> None:
        self._stop_looking()
        if not self.closed:
            self._reactor.unwatch(self._sock.fileno())
            self._sock.close()
        while self._pidfds:
            os.close(self._pidfds.pop())
        while self.seen_folders:
            os.close(self.seen_folders.popitem()[1])
        while self.listeners:
            os.close(self.listeners.popitem()[1])
        if self.network is not None:
            os.close(self.network)
            self.network = None
        while self._shared_memory:
            self._shared_memory.popitem()[1].close()


def _ignore(*_: object) -> None: ...


def first_frame(prepare: messages.Prepare) -> messages.Prepare:
    """Return the first message of a zygote: the policy's part, and nothing of a session."""
    # The mounts are identified now and not in the plan, because the user may have made a folder
    # anew since.
    mounts = tuple(map(identity, prepare.plan.mounted))
    return replace(prepare, inputs={}, launch=None, mounts=mounts)


def _send_first(sock: socket.socket, first: messages.Prepare) -> None:
    """Send a zygote its first frame.

    A zygote in namespaces sees the guests' folder as a mount of its own, which it can empty but not
    remove. So it gets descriptors of the two folders above as well. Guests never have these
    (``close_inherited``).
    """
    if "namespaces" not in first.plan.locks:
        _send(sock, first)
        return
    with contextlib.suppress(OSError), contextlib.ExitStack() as folders:  # as in ``_send``
        descriptors = list[int]()
        for folder in list(Path(first.scratch).parents)[:2]:
            descriptors.append(os.open(folder, _FOLDER))
            folders.callback(os.close, descriptors[-1])
        _send(sock, first, descriptors)


def _send(sock: socket.socket, message: Any, fds: list[int] | None = None) -> None:
    """Send a message to a zygote.

    If the zygote is gone nothing is raised: its messages are read first, then the end of its
    socket. If it has not read for long (``spawn.SENDING``), the socket is shut down, because
    nothing after a partial frame could be understood.
    """
    frame = bytes(frames.encode(message))
    byte_count = 0
    try:
        if fds:
            byte_count = socket.send_fds(sock, [frame], fds)
        sock.sendall(frame[byte_count:])
    except TimeoutError:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


def place_of(prepare: messages.Prepare) -> messages.SessionSetup:
    """Return the fields of ``prepare`` that only guests get."""
    names = (name for name in messages.SessionSetup.__struct_fields__ if name != "seed")
    return messages.SessionSetup(**{name: getattr(prepare, name) for name in names})


# --- how processes end ------------------------------------------------------------------------


def kill(pid: int, pidfd: int | None) -> None:
    """Kill a process, by its pidfd if that is given, which is closed. Ignore one that is gone."""
    with contextlib.suppress(ProcessLookupError):
        if pidfd is None:
            os.kill(pid, signal.SIGKILL)
            return
        with os.fdopen(pidfd, "rb", buffering=0):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def kill_session(session: int) -> None:
    """Kill all processes in a guest's OS session.

    Used if the zygote is gone, since only the zygote knew the guest's descendants. No other
    session has this number while a process is in it (setsid(2)).
    """
    for entry in os.scandir("/proc") if session > 0 else ():
        with contextlib.suppress(ValueError, OSError):
            if os.getsid(int(entry.name)) == session:
                os.kill(int(entry.name), signal.SIGKILL)


#: The reason for a guest that ended itself, for example by ``os._exit``; its status follows.
EXITED: Final = "it exited with status "


def exit_reason(status: int) -> str:
    """Return what a status of wait(2) means, as users see it."""
    if os.WIFSIGNALED(status):
        number: Any = os.WTERMSIG(status)
        if number in signal.valid_signals() and number < signal.SIGRTMIN:
            number = signal.Signals(number).name
        return f"it was ended by signal {number}"
    return f"{EXITED}{os.waitstatus_to_exitcode(status)}"


# --- sources of zygotes -----------------------------------------------------------------------


class SharedZygote:
    """A zygote that several supervisors share. If it has ended, ``warm`` starts another one.

    ``prepare`` has what the supervisors have in common; what is particular to one of them is sent
    with each fork. ``of_one`` says that the supervisors are those of a session and its forks, which
    share a network.
    """

    def __init__(
        self,
        reactor: Reactor,
        spawn: Spawn,
        prepare: messages.Prepare,
        *,
        of_one: bool = False,
    ) -> None:
        # With listed hosts or with ports, no two sessions of a pool share a zygote.
        if not (of_one or prepare.plan.neighbours or prepare.plan.serves):
            # By these sockets the programs of one session could reach those of another.
            plan = replace(prepare.plan, loopback=False, local_sockets=False)
            prepare = replace(prepare, plan=plan)
        self._reactor = reactor
        self._spawn = spawn
        self._prepare = prepare
        self._zygote: Zygote | None = None

    @property
    def zygote(self) -> Zygote | None:
        """The present zygote, or None."""
        return None if self._zygote is None or self._zygote.closed else self._zygote

    def warm(self, tools: tuple[messages.Tool, ...], paths: tuple[str, ...] = ()) -> Zygote:
        """Return the zygote. If there is none, start one with these tools and package folders.

        Raises OSError.
        """
        if (zygote := self.zygote) is None:
            self._prepare = replace(self._prepare, tools=tools, paths=paths)
            self._zygote = zygote = Zygote(self._reactor, self._spawn, self._prepare)
        return zygote

    def close(self) -> Zygote | None:
        """Tell the zygote to end with all its guests; return it, so that it can be waited for."""
        zygote = self.zygote
        self._zygote = None
        if zygote is not None:
            zygote.hang_up()
        return zygote


class Standing(NamedTuple):
    """A zygote that was prepared before there was a session.

    ``guests`` are a guest whose messages have not been read yet and a spare guest, or None.
    """

    zygote: Zygote
    guests: tuple[Guest, SpareGuest] | None


class ZygoteSource:
    """The source of one supervisor's zygotes: its own ones, or a share in a ``SharedZygote``.

    For a share, ``place`` is what the supervisor's guests have for themselves, and ``on_left`` is
    called when the supervisor has ended and nothing of its guests is left. ``ahead`` returns a
    zygote that was already prepared with the same message, or None.
    """

    def __init__(
        self,
        reactor: Reactor,
        spawn: Spawn | SharedZygote,
        place: messages.SessionSetup | None = None,
        on_left: Callable[[], None] | None = None,
        ahead: Callable[[messages.Prepare], Standing | None] | None = None,
    ) -> None:
        self._reactor = reactor
        self._spawn = spawn
        self._ahead = ahead
        self._guests: tuple[Guest, SpareGuest] | None = None
        self._place = place
        self._on_left = on_left
        self._user: ZygoteUser | None = None
        self._forks: list[int] = []

    @property
    def is_shared(self) -> bool:
        """Whether other supervisors have guests of the same zygotes."""
        return self._on_left is not None

    def get(self, prepare: messages.Prepare, user: ZygoteUser) -> Zygote:
        """Return a zygote that is prepared with this message, or will be. Raises OSError."""
        if isinstance(self._spawn, SharedZygote):
            zygote = self._spawn.warm(prepare.tools, prepare.paths)
        elif self._ahead is not None and (standing := self._ahead(prepare)) is not None:
            zygote, self._guests = standing
        else:
            zygote = Zygote(self._reactor, self._spawn, prepare)
        zygote.users.append(user)
        self._user = user
        self._forks = []
        return zygote

    def take_guests(self) -> tuple[Guest, SpareGuest] | None:
        """Return the guests that a zygote had before there was a session. Return them once."""
        guests = self._guests
        self._guests = None
        return guests

    def fork(self, zygote: Zygote, guest: Guest) -> None:
        """Have a guest of the supervisor forked from a zygote."""
        zygote.fork(guest, place=self._place)
        self._forks.append(guest.lineage.number)

    def leave(self, zygote: Zygote) -> bool:
        """End the supervisor's guests, but leave their folder for those of another zygote.

        Return whether that is done, or was asked of a shared zygote.
        """
        if self._on_left is None:
            return zygote.quit()
        self.end(zygote)
        return True

    def end(self, zygote: Zygote) -> bool:
        """End the supervisor's guests; return whether they and their folder are gone already.

        A shared zygote goes on. Its guests end later, and then ``on_left`` is called.
        """
        if self._on_left is None:
            return zygote.end()
        if self._user in zygote.users:
            zygote.users.remove(self._user)
        if zygote.closed:  # its guests ended with it
            self._reactor.call_later(0, self._on_left)
        else:
            zygote.end_forks(tuple(self._forks), self._on_left)
        return False
