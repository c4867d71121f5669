"""The host's end of a zygote: its control socket, the guests forked from it, and how it ends.

A supervisor has its zygotes from a ``ZygoteSource``: its own (a kernel), or a part in one that
several share (sandboxes of a pool).
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

from cellblock.descriptors import identity
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

#: No process has this number or one above it (proc(5), pid_max): what is sent to it comes to
#: nothing. It stands for a process that is gone.
NO_PROCESS: Final = 2**22
#: Of a pidfd. ``Pid`` is -1 when the process was waited for, 0 where it is not below us.
_PIDFD: Final = re.compile(rb"^Pid:\t([1-9]\d*)$", re.MULTILINE)
#: Of a process: its numbers from this namespace inwards.
_STATUS: Final = re.compile(rb"^NSpid:\t.*?(\d+)$", re.MULTILINE)
_MAX_READ: Final = 4096


class Pids:
    """What processes are called by the zygote, where it is in a pid ``namespace`` of its own.

    The same number means two processes then, so whatever crosses the control socket is translated,
    here alone: all of the host knows processes by its own numbers. A pidfd means one process on
    either side, and the OS kernel tells what that is called on both (proc(5)); nobody's word is
    taken for it. Without a namespace numbers are the same.
    """

    def __init__(self, *, namespace: bool) -> None:
        self._namespace = namespace
        #: The host's number of each guest that serves or is to, by the zygote's.
        self._outside: dict[int, int] = {}

    def forked(self, pid: int, pidfd: int | None) -> int:
        """Return the host's number of a fork; NO_PROCESS where it has ended or can't be known."""
        if not self._namespace:
            return pid
        found = _PIDFD.search(_read(f"/proc/self/fdinfo/{pidfd}"))
        self._outside[pid] = int(found[1]) if found else NO_PROCESS
        return self._outside[pid]

    def serves(self, pid: int) -> None:
        """Record a snapshot that is to serve: its end will be told by the zygote's number."""
        if self._namespace and (inside := self.inside(pid)) != NO_PROCESS:
            self._outside[inside] = pid

    def reaped(self, pid: int) -> int:
        """Return the host's number of what has ended; nobody's for what never was to serve."""
        return self._outside.pop(pid, NO_PROCESS + 1) if self._namespace else pid

    def inside(self, pid: int) -> int:
        """Return what the zygote calls a process; NO_PROCESS when it is gone."""
        if not self._namespace:
            return pid
        found = _STATUS.search(_read(f"/proc/{pid}/status"))
        return int(found[1]) if found else NO_PROCESS


def _read(path: str) -> bytes:
    with contextlib.suppress(OSError), open(path, "rb", buffering=0) as file:
        return file.read(_MAX_READ)
    return b""  # it is gone


# --- a zygote ---------------------------------------------------------------------------------

READ_SIZE = 1 << 16
#: Descriptors taken with one read: a pidfd comes with each ``Forked``.
_DESCRIPTORS = 16
#: Reads of what it has said that is waited for.
_MAX_READS = 64
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
#: Seconds that a zygote has to kill its guests.
PATIENCE = 2.0
#: Seconds that its reaper has to do so instead: it has hundreds of processes to wait for, say.
ENDING = 10.0
#: Seconds that it is waited for while it removes their folder; then it goes on alone. Whoever
#: stops a kernel and finds this long kills the host, and the zygote goes on alone then too.
REMOVAL = 30.0
#: Seconds between two looks at whether a zygote has taken up what it was sent, and how many looks
#: it has to do so: more than it takes to end a session (``notify.end_sessions``). Looks are
#: counted and not seconds, since a host that was stopped has not listened.
LOOK: Final = 1.0
LOOKS: Final = 15
#: Looks until it can fork guests: it imports what the policy names, perhaps from a slow disk.
LOOKS_AT_START: Final = 300
#: All that is known where what stands between host and guests went without a word.
ENDED: Final = "its zygote ended"
HUNG: Final = "its zygote did not answer and was ended"
#: Every control socket there is. A fork of this program has none: its zygote waits for their end.
_SOCKETS: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _close_all() -> None:
    for sock in _SOCKETS:
        sock.close()


os.register_at_fork(after_in_child=_close_all)


class ZygoteUser(Protocol):
    """Who has guests of a zygote."""

    def on_zygote(self, message: messages.FromZygote) -> None:
        """Hear that a process ended, that locks are ready, or that no guest can be forked."""

    def on_zygote_lost(self, why: str) -> None:
        """Hear that it has ended, and all guests with it."""


class Zygote:
    """One zygote, whose ``users`` hear what it says. Raises OSError where it can't be started.

    It is told ``prepare``, which several users share. It takes each message up in time
    (``messages.Obeyed``). One that hangs is killed, with all that it started, and its users hear
    that it is lost.

    ``pid`` is its reaper's; where it has a pid namespace of its own, that of the process which ends
    when it does, and takes it along.
    """

    def __init__(self, reactor: Reactor, spawn: Spawn, prepare: messages.Prepare) -> None:
        self._reactor = reactor
        self._sock, self.pid = spawn()
        _SOCKETS.add(self._sock)
        self.users: list[ZygoteUser] = []
        self._namespace = "namespaces" in prepare.plan.locks
        self._pids = Pids(namespace=self._namespace)
        self._splitter = frames.Splitter()
        self._decode: frames.Decoder[messages.FromZygote] = frames.Decoder(messages.FromZygote)
        self._pidfds: list[int] = []
        #: Folders as guests see them, where the host does not: descriptors, by the guests' paths.
        #: Closed before another zygote lays its layers: two overlays would spoil the upper folder.
        self.seen_folders: dict[str, int] = {}
        #: Their /dev/shm, where they have one: by their session's scratch folder, or one for all
        #: by "", where sessions have no mounts of their own.
        self._shared_memory: dict[str, SharedMemory] = {}
        #: Where guests' connections to listed hosts come: sockets' descriptors.
        self._neighbours = prepare.plan.neighbours
        self.listeners: dict[messages.Neighbour, int] = {}
        #: A socket of their network, by which the host enters it, where the plan ``serves``.
        self.network: int | None = None
        self._numbers = itertools.count(1)
        #: Guests whose pid is yet to be told, by their fork's number.
        self._forks: dict[int, Guest] = {}
        #: What guests and their copies descend from, by the fork's number.
        self._lineages: dict[int, Lineage] = {}
        #: Called when nothing descends any more from forks that were left, by a number.
        self._leaving: dict[int, Callable[[], None]] = {}
        #: Called with why layers could not be refreshed, or nothing, by a number.
        self._refreshing: dict[int, Callable[[str], None]] = {}
        #: Messages that it has not taken up yet, the first one among them, and looks at the oldest.
        self._unobeyed = 1
        self._is_prepared = False
        self._looks = 0
        self._look_timer: Timer | None = None
        self._own_mounts = prepare.plan.own_mounts
        self._place = place_of(prepare)
        self._watch_oldest()
        reactor.watch(self._sock.fileno(), self.read_rest)
        _tell(self._sock, first_frame(prepare))

    @property
    def closed(self) -> bool:
        """Whether it has ended."""
        return self._sock.fileno() < 0

    # --- to the zygote ------------------------------------------------------------------------

    def _send(self, message: Any, fds: list[int] | None = None) -> None:
        _send(self._sock, message, fds)
        self._unobeyed += 1
        self._watch_oldest()

    def _watch_oldest(self) -> None:
        """See to it that the oldest message which was not taken up yet is, in time."""
        if self._look_timer is None and self._unobeyed and not self.closed:
            self._look_timer = self._reactor.call_later(LOOK, self._look)

    def _look(self) -> None:
        self._look_timer = None
        self.read_rest()  # the host may have been too busy to hear it
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
        """Have a guest forked, which has its pid when the zygote has said so.

        Its ``place``, or that of all, is for itself to read: it waits on the guest's own channel.
        """
        number = guest.lineage.number = next(self._numbers)
        self._forks[number] = guest
        place = place or self._place
        guest.send(replace(place, seed=os.urandom(32)))
        mounts = guest.lineage.mounts = place.scratch if self._own_mounts else ""
        self._send(messages.Fork(id=number, trial=trial, mounts=mounts), guest.child_fds)
        guest.close_child_fds()

    def allow_fork(self, lineage: int, pid: int | None) -> None:
        """Let the next fork of ``pid`` through, a guest or one of its copies; None is whoever."""
        inside = None if pid is None else self._pids.inside(pid)
        self._send(messages.AllowFork(id=lineage, pid=inside))

    def protect(self, snapshot: Guest) -> None:
        """Have its guest's cells signal it no more, though they may end what they start.

        The zygote does so before it answers another call of the guest's.
        """
        inside = self._pids.inside(snapshot.pid or NO_PROCESS)
        snapshot.lineage.uses_device.discard(inside)  # an earlier process of this number
        self._send(messages.Protect(id=snapshot.lineage.number, pid=inside))

    def new_user(self) -> int:
        """Return the number of a fork of a sandbox."""
        return next(self._numbers)

    def begin_session(self, guest: Guest, user: int) -> None:
        """Let a copy that is to serve a ``user`` begin a session of that user's."""
        inside = self._pids.inside(guest.pid or NO_PROCESS)
        self._send(messages.BeginSession(id=guest.lineage.number, pid=inside, user=user))

    def keep_only(
        self, lineage: Lineage, user: int, pids: Iterable[int], others: Iterable[int] = ()
    ) -> None:
        """Have all processes in a user's sessions killed but these and ``others``."""
        self._send(
            messages.KeepOnly(
                id=lineage.number,
                user=user,
                pids=tuple(map(self._pids.inside, pids)),
                others=tuple(map(self._pids.inside, others)),
            )
        )

    def narrow(
        self, guest: Guest, plan: messages.Plan, ticket: int, *, rulesets: int, fork: bool = False
    ) -> None:
        """Have the locks of a narrower plan made for a copy; ``Narrowed`` says what came of it."""
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
        """Record a snapshot that is to serve: its end is told by ``Reaped`` from now on."""
        if guest.pid is not None:
            self._pids.serves(guest.pid)

    def end_forks(self, forks: tuple[int, ...], left: Callable[[], None]) -> None:
        """Have what descends from these forks ended; ``left`` is called when it is."""
        for number in forks:
            self._forks.pop(number, None)
            lineage = self._lineages.pop(number, None)
            own = lineage.mounts if lineage is not None else ""
            if own and (memory := self._shared_memory.pop(own, None)) is not None:
                memory.close()
        number = next(self._numbers)
        self._leaving[number] = left
        self._send(messages.EndForks(id=number, forks=forks))

    def shared_memory(self, lineage: Lineage) -> SharedMemory | None:
        """Return the /dev/shm of a guest and its copies, where they have one."""
        return self._shared_memory.get(lineage.mounts)

    def uses_device(self, guest: Guest) -> bool:
        """Return whether a guest was seen to ask a device something, as far as that was read."""
        seen = guest.lineage.uses_device
        return bool(seen) and self._pids.inside(guest.pid or NO_PROCESS) in seen

    def refresh(self, done: Callable[[str], None]) -> None:
        """Have layers forget what they have looked up; ``done`` gets why that failed, or nothing.

        It is not called when the zygote is lost.
        """
        number = next(self._numbers)
        self._refreshing[number] = done
        self._send(messages.Refresh(id=number))

    def check(self) -> None:
        """Have the zygote show that it does not hang, or be replaced."""
        if not self._unobeyed:
            self._send(messages.Ping())

    # --- from the zygote ----------------------------------------------------------------------

    def read_rest(self) -> None:
        """Take what it has said until now, and wait for nothing.

        The loop calls this, too: what it saw here may have been read meanwhile, since whoever is
        called before may read the rest. Our end waits ``SENDING`` seconds for what does not come.
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
        """Kill what is left of it, and tell its users."""
        self.kill()
        for user in tuple(self.users):
            user.on_zygote_lost(why)
        self._all_left()

    def _receive(self) -> bytes:
        try:
            data, pidfds, *_ = socket.recv_fds(self._sock, READ_SIZE, _DESCRIPTORS)
        except OSError:
            return b""
        for pidfd in pidfds:
            os.set_inheritable(pidfd, False)  # `recv_fds` does not pass on its flags
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
                self._leaving.pop(number, _ignore)()
            case messages.Refreshed(id=number, failure=failure):
                self._refreshing.pop(number, _ignore)(failure)
            case messages.Obeyed():
                self._on_obeyed()
            case _:
                self._tell_users(message)

    def _take_descriptor(
        self, message: messages.SeenFolder | messages.Listening | messages.OwnNetwork
    ) -> None:
        """Keep what a zygote sends once, with a descriptor; without one there is nothing."""
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
        """Learn which process a guest is."""
        guest = self._forks.pop(message.id, None)
        if self._namespace and pidfd is None:
            # No descriptors are left, and the number alone is not ours: it is ended.
            self._send(messages.KeepOnly(id=message.id, user=message.id, pids=()))
            return
        pid = self._pids.forked(message.pid, pidfd)
        if guest is None or guest.ended:  # it was replaced before its pid was known
            kill(pid, pidfd)
        else:
            guest.pid, guest.pidfd, guest.session = pid, pidfd, pid
            guest.lineage.session = pid
            guest.lineage.sessions = {**guest.lineage.sessions, message.pid: message.id}
            guest.lineage.namespace = self._namespace
            self._lineages[message.id] = guest.lineage

    def _all_left(self) -> None:
        leaving, self._leaving = self._leaving, {}
        for left in leaving.values():
            left()

    # --- its end ------------------------------------------------------------------------------

    def end(self) -> bool:
        """Have it kill its guests, remove their folder and go; return whether that is done.

        One that can't kill them in time is killed, which ends them too, and leaves the folder to
        the caller. If that is not done in time either, the folder is left to the reaper, or to
        whoever starts next: a guest that no signal ends may keep it locked. A zygote that only has
        much to remove is left to it.
        """
        self.hang_up()
        return self.wait()

    def hang_up(self) -> None:
        """Tell the zygote to end, and stop listening to it; ``wait`` blocks until it has ended."""
        self._stop_looking()
        with contextlib.suppress(OSError):
            self._reactor.unwatch(self._sock.fileno())
            self._sock.shutdown(socket.SHUT_WR)
        self._all_left()

    def wait(self) -> bool:
        """Wait for what ``hang_up`` began; any thread may."""
        if self.closed:
            return True
        done = False
        if self._exited(PATIENCE, or_hung_up=True):
            done = self._exited(REMOVAL)
        else:
            # All has ended when its reaper has: then the folder is nobody's.
            done = not self._namespace and self._ended_by(signal.SIGTERM, ENDING)
            if not done:
                self.kill()
        self._release()
        return done

    def quit(self) -> bool:
        """Have it kill its guests and go, and leave their folder as it is, for another zygote's.

        Return whether it could: one that can't in time is killed.
        """
        self._send(messages.Quit())
        if self._exited(PATIENCE):
            self._release()
            return True
        self.kill()
        return False

    def kill(self) -> bool:
        """Kill it, and its guests with it; return whether it has gone."""
        # Its reaper, where there is one, is asked first: that kills it and sees to its guests.
        asking = () if self._namespace else (signal.SIGTERM,)
        gone = any(self._ended_by(number) for number in (*asking, signal.SIGKILL))
        self._release()
        return gone

    def _ended_by(self, number: int, seconds: float = PATIENCE) -> bool:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
        return self._exited(seconds)

    def _exited(self, seconds: float, *, or_hung_up: bool = False) -> bool:
        """Wait until it has exited; its end of the socket is closed when its guests are gone."""
        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        poll, deadline = select.poll(), time.monotonic() + seconds
        poll.register(fd, select.POLLIN)
        if or_hung_up:
            poll.register(self._sock, select.POLLIN)
        try:
            while (left := deadline - time.monotonic()) > 0:
                ready = [number for number, _ in poll.poll(left * 1000)]
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
    """Return what a zygote is told first of all: the policy, and nothing of a session."""
    # Found now, not when it was planned: the user may have made a folder anew since.
    mounts = tuple(map(identity, prepare.plan.mounted))
    return replace(prepare, inputs={}, launch=None, mounts=mounts)


def _tell(sock: socket.socket, first: messages.Prepare) -> None:
    """Send a zygote its first frame.

    One that sees the guests' folder as a mount of its own can empty it, and no more: what that lies
    in comes along, the private folder and what has that. Guests never have them
    (``close_inherited``).
    """
    if "namespaces" not in first.plan.locks:
        _send(sock, first)
        return
    with contextlib.suppress(OSError), contextlib.ExitStack() as opened:  # as in ``_send``
        above = list[int]()
        for folder in list(Path(first.scratch).parents)[:2]:
            above.append(os.open(folder, _FOLDER))
            opened.callback(os.close, above[-1])
        _send(sock, first, above)


def _send(sock: socket.socket, message: Any, fds: list[int] | None = None) -> None:
    """Send a message; one that is gone is seen by its hanging up, after what it said.

    One that has not read for long (``spawn.SENDING``) is hung up on: nothing that is sent after a
    part of a frame would be understood.
    """
    frame, sent = bytes(frames.encode(message)), 0
    try:
        if fds:
            sent = socket.send_fds(sock, [frame], fds)
        sock.sendall(frame[sent:])
    except TimeoutError:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


def place_of(prepare: messages.Prepare) -> messages.SessionSetup:
    """Return what of it is for guests alone."""
    names = (name for name in messages.SessionSetup.__struct_fields__ if name != "seed")
    return messages.SessionSetup(**{name: getattr(prepare, name) for name in names})


# --- how processes end ------------------------------------------------------------------------


def kill(pid: int, pidfd: int | None) -> None:
    """Kill a process, by its descriptor if there is one, which is closed; harmless when gone."""
    with contextlib.suppress(ProcessLookupError):
        if pidfd is None:
            os.kill(pid, signal.SIGKILL)
            return
        with os.fdopen(pidfd, "rb", buffering=0):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def kill_session(session: int) -> None:
    """Kill whatever is in a guest's session: with the zygote went who knew its descendants.

    No other session has its number while anything is in it (setsid(2)).
    """
    for entry in os.scandir("/proc") if session > 0 else ():
        with contextlib.suppress(ValueError, OSError):
            if os.getsid(int(entry.name)) == session:
                os.kill(int(entry.name), signal.SIGKILL)


#: What is said of a guest that ended itself, as by ``os._exit``; its status follows.
EXITED: Final = "it exited with status "


def exit_reason(status: int) -> str:
    """Return what a status of wait(2) means."""
    if os.WIFSIGNALED(status):
        number: Any = os.WTERMSIG(status)
        if number in signal.valid_signals() and number < signal.SIGRTMIN:
            number = signal.Signals(number).name
        return f"it was ended by signal {number}"
    return f"{EXITED}{os.waitstatus_to_exitcode(status)}"


# --- where supervisors have zygotes from ------------------------------------------------------


class SharedZygote:
    """One zygote of which several supervisors have their guests; another when it has ended.

    It prepares for ``prepare``; what a supervisor has for itself goes along with each fork.
    ``of_one`` says that these are a session and its forks, who share a network.
    """

    def __init__(
        self,
        reactor: Reactor,
        spawn: Spawn,
        prepare: messages.Prepare,
        *,
        of_one: bool = False,
    ) -> None:
        # Under a list, and with ports, no two sessions of a pool have one zygote.
        if not (of_one or prepare.plan.neighbours or prepare.plan.serves):
            # Sockets by which the programs of one would reach those of another.
            plan = replace(prepare.plan, loopback=False, local_sockets=False)
            prepare = replace(prepare, plan=plan)
        self._reactor, self._spawn, self._prepare = reactor, spawn, prepare
        self._zygote: Zygote | None = None

    @property
    def zygote(self) -> Zygote | None:
        """The one that there is, or None."""
        return None if self._zygote is None or self._zygote.closed else self._zygote

    def warm(self, tools: tuple[messages.Tool, ...], paths: tuple[str, ...] = ()) -> Zygote:
        """Return the zygote; start one whose guests know these tools and folders of packages.

        Raises OSError.
        """
        if (zygote := self.zygote) is None:
            self._prepare = replace(self._prepare, tools=tools, paths=paths)
            self._zygote = zygote = Zygote(self._reactor, self._spawn, self._prepare)
        return zygote

    def close(self) -> Zygote | None:
        """Hang up on the zygote, which ends with all guests; return it to be waited for."""
        zygote, self._zygote = self.zygote, None
        if zygote is not None:
            zygote.hang_up()
        return zygote


class Standing(NamedTuple):
    """A zygote that was told its policy before there was a session.

    Its guests, if it has any: one that is not heard yet, and a spare one.
    """

    zygote: Zygote
    guests: tuple[Guest, SpareGuest] | None


class ZygoteSource:
    """Where one supervisor has its zygotes from: its own, or a part in a shared one.

    For a part, ``place`` is what the supervisor's guests have for themselves, and ``on_left`` is
    called when the supervisor has ended and nothing is left of them. ``ahead`` returns a zygote
    that was told just this already, if there is one.
    """

    def __init__(
        self,
        reactor: Reactor,
        spawn: Spawn | SharedZygote,
        place: messages.SessionSetup | None = None,
        on_left: Callable[[], None] | None = None,
        ahead: Callable[[messages.Prepare], Standing | None] | None = None,
    ) -> None:
        self._reactor, self._spawn = reactor, spawn
        self._ahead = ahead
        self._guests: tuple[Guest, SpareGuest] | None = None
        self._place, self._on_left = place, on_left
        self._user: ZygoteUser | None = None
        self._forks: list[int] = []

    @property
    def is_shared(self) -> bool:
        """Whether others have guests of the same zygotes."""
        return self._on_left is not None

    def get(self, prepare: messages.Prepare, user: ZygoteUser) -> Zygote:
        """Return a zygote that prepares for this, or has. Raises OSError."""
        if isinstance(self._spawn, SharedZygote):
            zygote = self._spawn.warm(prepare.tools, prepare.paths)
        elif self._ahead is not None and (found := self._ahead(prepare)) is not None:
            zygote, self._guests = found
        else:
            zygote = Zygote(self._reactor, self._spawn, prepare)
        zygote.users.append(user)
        self._user, self._forks = user, []
        return zygote

    def take_guests(self) -> tuple[Guest, SpareGuest] | None:
        """Return, once, the guests that a zygote had before there was a session."""
        guests, self._guests = self._guests, None
        return guests

    def fork(self, zygote: Zygote, guest: Guest) -> None:
        """Have the supervisor's next guest forked."""
        zygote.fork(guest, place=self._place)
        self._forks.append(guest.lineage.number)

    def leave(self, zygote: Zygote) -> bool:
        """End the supervisor's guests, and leave their folder for those of another zygote.

        Return whether that is done, or asked of a zygote that is there to do it.
        """
        if self._on_left is None:
            return zygote.quit()
        self.end(zygote)
        return True

    def end(self, zygote: Zygote) -> bool:
        """End the supervisor's guests; return whether they and their folder are gone by now."""
        if self._on_left is None:
            return zygote.end()
        if self._user in zygote.users:
            zygote.users.remove(self._user)
        if zygote.closed:  # they went with it
            self._reactor.call_later(0, self._on_left)
        else:
            zygote.end_forks(tuple(self._forks), self._on_left)
        return False
