"""The host's end of a zygote: its control socket, and how it ends."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
import weakref
from typing import TYPE_CHECKING, Any

import msgspec

from cellblock.policy.paths import identity
from cellblock.wire import frames, messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.guest_process import Guest
    from cellblock.host.numbers import Translation
    from cellblock.host.reactor import Reactor

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

    def __init__(  # noqa: PLR0913, PLR0917 - as the keeper has it
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

    def hear_out(self) -> None:
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
