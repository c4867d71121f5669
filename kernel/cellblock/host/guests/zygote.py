"""The host's end of a zygote: its control socket, and how it ends."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import time
import weakref
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from cellblock.policy.paths import identity
from cellblock.wire import frames, messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.guests.process import Guest
    from cellblock.host.session.types import Reactor


READ_SIZE = 1 << 16
#: Descriptors taken with one read: a pidfd comes with each ``Forked``.
_DESCRIPTORS = 16
#: Reads of what it has said that is waited for.
_MOST_HEARD = 64
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
#: Seconds that a zygote has to kill its guests.
PATIENCE = 2.0
#: Seconds that it is waited for while it removes their folder; then it goes on alone. Whoever
#: stops a kernel and finds this long kills the host, and the zygote goes on alone then too.
REMOVAL = 30.0
#: Every control socket there is. A fork of this program has none: its zygote waits for their end.
_SOCKETS: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _close_all() -> None:
    for sock in _SOCKETS:
        sock.close()


os.register_at_fork(after_in_child=_close_all)


def place_of(told: messages.Prepare) -> messages.Place:
    """Return what of it is for guests alone."""
    names = (name for name in messages.Place.__struct_fields__ if name != "seed")
    return messages.Place(**{name: getattr(told, name) for name in names})


class Zygote:
    """The host's end of a zygote's control socket.

    ``on_message`` gets each message and, with ``Forked``, the guest's pidfd, which it must close.
    ``pid`` is its reaper. ``translation`` is for one in a pid namespace of its own; ``pid`` is then
    the process that goes when it does, and takes it along.
    """

    def __init__(
        self,
        sock: socket.socket,
        pid: int,
        reactor: Reactor,
        on_message: Callable[[Any, int | None], None],
        on_lost: Callable[[], None],
        translation: Translation | None = None,
    ) -> None:
        self._sock, self.pid, self._reactor = sock, pid, reactor
        _SOCKETS.add(sock)
        self._translation = translation
        self._on_message, self._on_lost = on_message, on_lost
        self._splitter = frames.Splitter()
        self._decode: frames.Decoder[messages.FromZygote] = frames.Decoder(messages.FromZygote)
        self._pidfds: list[int] = []
        #: The guests' folder, where it is nowhere outside.
        self.folder: int | None = None
        self._forks = 0
        #: What its guests have for themselves, unless it is said with a fork.
        self._place: messages.Place | None = None
        reactor.watch(sock.fileno(), self._readable)

    def prepare(self, request: messages.Prepare) -> None:
        """Tell the zygote its policy; the first frame it gets.

        One that sees the guests' folder as a mount of its own can empty it, and no more: what that
        lies in comes along. Guests never have it (``close_inherited``).
        """
        self._place = place_of(request)
        # Found now, not when it was planned: the user may have made a folder anew since.
        mounts = tuple(map(identity, request.plan.mounted))
        request = msgspec.structs.replace(request, inputs={}, mounts=mounts)
        if self._translation is None:
            self._tell(request)
            return
        with contextlib.suppress(OSError):  # as below
            above = os.open(os.path.dirname(request.scratch), _FOLDER)  # noqa: PTH120
            try:
                frame = bytes(frames.encode(request))
                sent = socket.send_fds(self._sock, [frame], [above])
                self._sock.sendall(frame[sent:])
            finally:
                os.close(above)

    def fork(
        self,
        guest: Guest,
        *,
        trial: messages.Trial | None = None,
        place: messages.Place | None = None,
    ) -> None:
        """Have a guest forked; ``Forked`` with its number brings its pid and pidfd.

        Its place, or that of all, is for itself to read: it waits on the guest's own channel.
        """
        self._forks += 1
        guest.number = guest.lineage.number = number = self._forks
        if own := place or self._place:
            guest.send(msgspec.structs.replace(own, seed=os.urandom(32)))
        fork = messages.Fork(id=number, trial=trial)
        frame = bytes(frames.encode(fork))
        with contextlib.suppress(OSError):  # as below
            sent = socket.send_fds(self._sock, [frame], guest.theirs)
            self._sock.sendall(frame[sent:])
        guest.release_theirs()

    def allow(self, lineage: int, pid: int | None) -> None:
        """Let the next fork of ``pid`` through, a guest or one of its copies; None is whoever."""
        due = messages.Allow(id=lineage, pid=pid)
        self._tell(self._translation.allow(due) if self._translation else due)

    def members(self, lineage: int, session: int, pids: tuple[int, ...]) -> None:
        """Say which processes there are to be in a guest's session; others are killed."""
        claim = messages.Members(id=lineage, session=session, pids=pids)
        self._tell(self._translation.members(claim) if self._translation else claim)

    def confine(self, guest: Guest, plan: messages.Plan, ticket: int) -> None:
        """Have the locks of a narrower plan made for a copy; ``Confined`` says what came of it."""
        claim = messages.Confine(
            id=guest.lineage.number,
            ticket=ticket,
            session=guest.lineage.session,
            pid=guest.pid or 0,
            plan=plan,
        )
        self._tell(self._translation.confine(claim) if self._translation else claim)

    def read_rest(self) -> None:
        """Take what it has said until now."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        for _ in range(_MOST_HEARD):
            if self._sock.fileno() < 0 or not poll.poll(0):
                return
            self._readable()

    def serves(self, guest: Guest) -> None:
        """Take note that a snapshot is to serve: its end is told by ``Reaped`` from now on."""
        if self._translation is not None and guest.pid is not None:
            self._translation.serves(guest.pid)

    def leave(self, number: int, forks: tuple[int, ...]) -> None:
        """Have what descends from these forks ended; ``Left`` with this number says that it is."""
        self._tell(messages.Leave(id=number, forks=forks))

    def _tell(self, message: Any) -> None:
        """Send a message; one that is gone is seen by its hanging up, after what it said."""
        with contextlib.suppress(OSError):
            self._sock.sendall(frames.encode(message))

    def _readable(self) -> None:
        if not (data := self._receive()):
            self._on_lost()
            return
        for payload in self._splitter.feed(data):
            message = self._decode(payload)
            with_one = isinstance(message, messages.Forked | messages.Placed)
            pidfd = self._pidfds.pop(0) if with_one and self._pidfds else None
            if isinstance(message, messages.Placed):
                self.folder = pidfd
            elif self._translation is None:
                self._on_message(message, pidfd)
            else:
                self._translate(self._translation, message, pidfd)

    def _translate(self, translation: Translation, message: Any, pidfd: int | None) -> None:
        if isinstance(message, messages.Reaped):
            message = translation.reaped(message)
        elif isinstance(message, messages.Forked):
            if pidfd is None:
                # No descriptors are left, and the number alone is not ours: it is ended.
                self._tell(messages.Members(id=message.id, session=message.pid, pids=()))
                return
            message = translation.forked(message, pidfd)
        self._on_message(message, pidfd)

    def _receive(self) -> bytes:
        try:
            data, pidfds, *_ = socket.recv_fds(self._sock, READ_SIZE, _DESCRIPTORS)
        except OSError:
            return b""
        for pidfd in pidfds:
            os.set_inheritable(pidfd, False)  # `recv_fds` does not pass on its flags
        self._pidfds += pidfds
        return data

    def end(self) -> bool:
        """Have it kill its guests, remove their folder and go; say whether it has gone.

        One that can't kill them in time is killed, which ends them too. One that only has much to
        remove is left to it.
        """
        self.hang_up()
        return self.wait()

    def hang_up(self) -> None:
        """Begin with that: it is told, and not heard any more."""
        with contextlib.suppress(OSError):
            self._reactor.unwatch(self._sock.fileno())
            self._sock.shutdown(socket.SHUT_WR)

    def wait(self) -> bool:
        """Wait for what ``hang_up`` began; any thread may."""
        hung_up = self._exited(PATIENCE, or_hung_up=True)
        gone = self._exited(REMOVAL) if hung_up else self.kill()
        self._release()
        return gone

    def quit(self) -> bool:
        """Have it kill its guests and go, and leave their folder as it is, for another zygote's.

        Say whether it could: one that can't in time is killed.
        """
        self._tell(messages.Quit())
        if self._exited(PATIENCE):
            self._release()
            return True
        self.kill()
        return False

    def kill(self) -> bool:
        """Kill it, and its guests with it; say whether it has gone."""
        # Its reaper, where there is one, is asked first: that kills it and sees to its guests.
        asking = () if self._translation else (signal.SIGTERM,)
        gone = any(self._ended_by(number) for number in (*asking, signal.SIGKILL))
        self._release()
        return gone

    def _ended_by(self, number: int) -> bool:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
        return self._exited(PATIENCE)

    def _release(self) -> None:
        if self._sock.fileno() >= 0:
            self._reactor.unwatch(self._sock.fileno())
            self._sock.close()
        while self._pidfds:
            os.close(self._pidfds.pop())
        if self.folder is not None:
            os.close(self.folder)
            self.folder = None

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
                    self._collect()
                    return True
                if ready and not self._receive():
                    return True
        finally:
            os.close(fd)
        return False

    def _collect(self) -> None:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


# What processes are called: by one number here, and by another where their zygote is.
#
# A zygote may live in a pid namespace of its own, where a backend put it. It speaks of processes
# by their numbers there, the host by those here, and the same number means two processes. So
# whatever crosses the control socket is translated, here alone: all of the host knows processes
# by its own numbers. A pidfd means one process on either side, and the OS kernel tells what that
# is called on both (proc(5): ``Pid`` and ``NSpid``); nobody's word is taken for it.

#: No process has this number or one above it (proc(5), pid_max): what is sent to it comes to
#: nothing. It stands for a guest that was gone before the host heard of it.
NO_PROCESS: Final = 2**22
#: Of a pidfd. ``Pid`` is -1 when the process was waited for, 0 where it is not below us.
_PIDFD: Final = re.compile(rb"^Pid:\t([1-9]\d*)$", re.MULTILINE)
#: Of a process: its numbers from this namespace inwards.
_STATUS: Final = re.compile(rb"^NSpid:\t.*?(\d+)$", re.MULTILINE)
_MOST: Final = 4096
#: The lock of a zygote that is in a pid namespace of its own.
APART: Final = "namespaces"


def translation_for(plan: messages.Plan) -> Translation | None:
    """Return what translates for a zygote under ``plan``; None where numbers are the same."""
    return Translation() if APART in plan.locks else None


class Translation:
    """Between the host's numbers and one zygote's."""

    def __init__(self) -> None:
        #: What leads each lineage's session, by the zygote's number.
        self._leaders: dict[int, int] = {}
        #: The host's number of each guest that serves or is to, by the zygote's.
        self._here: dict[int, int] = {}

    def forked(self, message: messages.Forked, pidfd: int) -> messages.Forked:
        """Return what the zygote says of a fork in the host's numbers."""
        here = _behind(pidfd)
        self._leaders[message.id] = message.pid
        self._here[message.pid] = here
        return messages.Forked(id=message.id, pid=here)

    def serves(self, pid: int) -> None:
        """Take note that a snapshot is to serve, whose end will be told by the zygote's number."""
        if there := _innermost(pid):
            self._here[there] = pid

    def reaped(self, message: messages.Reaped) -> messages.Reaped:
        """Return the same for an end; of what never served, and of an orphan, that of nobody."""
        here = self._here.pop(message.pid, NO_PROCESS + 1)
        return messages.Reaped(pid=here, status=message.status)

    def allow(self, message: messages.Allow) -> messages.Allow:
        """Return in the zygote's numbers who is to fork; of who is gone, nobody."""
        there = None if message.pid is None else _innermost(message.pid) or NO_PROCESS
        return messages.Allow(id=message.id, pid=there)

    def confine(self, message: messages.Confine) -> messages.Confine:
        """Return in the zygote's numbers which process is to be locked, of which session."""
        leader = self._leaders.get(message.id, NO_PROCESS)
        there = _innermost(message.pid) or NO_PROCESS
        return replace(message, session=leader, pid=there)

    def members(self, message: messages.Members) -> messages.Members:
        """Return in the zygote's numbers who is to be in a session; who is gone is left out."""
        there = tuple(number for pid in message.pids if (number := _innermost(pid)))
        leader = self._leaders.get(message.id, NO_PROCESS)
        return messages.Members(id=message.id, session=leader, pids=there)


def _behind(pidfd: int) -> int:
    found = _PIDFD.search(_read(f"/proc/self/fdinfo/{pidfd}"))
    return int(found[1]) if found else NO_PROCESS


def _innermost(pid: int) -> int:
    """Return what a process is called in its own pid namespace; 0 when it is gone."""
    found = _STATUS.search(_read(f"/proc/{pid}/status"))
    return int(found[1]) if found else 0


def _read(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, _MOST)
    except OSError:  # gone meanwhile
        return b""
    finally:
        os.close(fd)


# How processes end: killing what is left of a guest, and saying what its exit status means.


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


def exit_reason(status: int) -> str:
    """Say what a status of wait(2) means."""
    if os.WIFSIGNALED(status):
        number: Any = os.WTERMSIG(status)
        if number in signal.valid_signals() and number < signal.SIGRTMIN:
            number = signal.Signals(number).name
        return f"it was ended by signal {number}"
    return f"it exited with status {os.waitstatus_to_exitcode(status)}"
