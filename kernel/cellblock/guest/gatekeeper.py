"""The zygote's side of its guests' gates: taking their listeners, answering what they stop."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from functools import partial
from typing import TYPE_CHECKING

from cellblock.guest.confine import arch, landlock, notify
from cellblock.guest.confine.libc import LockFailed
from cellblock.wire.messages import Limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.wire.messages import Confine, Plan

#: Seconds that processes have to end in, and between two looks at them.
_PATIENCE, _PAUSE = 10.0, 0.001


class Gatekeeper:
    """Every gate there is, in one poll loop.

    ``settle`` is called before a gate is asked: it takes what the host has said until now, so
    that a fork which the host allowed is known to be allowed.
    """

    def __init__(self, poll: select.poll, plan: Plan, settle: Callable[[], None]) -> None:
        self._poll, self._plan, self._settle = poll, plan, settle
        self._machine = arch.current()
        self._awaited: dict[int, tuple[socket.socket, int]] = {}
        self._gates: dict[int, tuple[notify.Gate, int]] = {}
        #: The sessions that forks began, by their numbers; and what is to end, by the wish's.
        self._sessions: dict[int, int] = {}
        self._ending: dict[int, frozenset[int]] = {}
        #: Rulesets that each guest has, by its number.
        self._layers: dict[int, int] = {}

    @property
    def wanted(self) -> bool:
        """Say whether guests are to be under a gate: the filter that asks is one of the locks."""
        return self._machine is not None and "seccomp" in self._plan.locks

    def expect(self, number: int) -> socket.socket | None:
        """Return the socket on which guest ``number`` is to send its listener."""
        if not self.wanted:
            return None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._awaited[ours.fileno()] = ours, number
        self._poll.register(ours, select.POLLIN)
        return theirs

    def concerns(self, fd: int) -> bool:
        """Say whether ``fd`` is one of ours."""
        return fd in self._awaited or fd in self._gates

    def act(self, fd: int, events: int) -> None:
        """Do what is due on ``fd``, which may have gone meanwhile."""
        if fd in self._awaited:
            self._take(fd)
        elif fd in self._gates and events & select.POLLIN:
            self._settle()
            if fd in self._gates and not self._gates[fd][0].answer():
                self._forget(fd)
        elif fd in self._gates and events & select.POLLHUP:
            self._forget(fd)  # nobody is under it any more
        # POLLERR says that a signal interrupted the look at it: the next one tells.

    def allow(self, number: int, pid: int | None) -> None:
        """Let one more fork through, of ``pid``: guest ``number``, or a snapshot of it."""
        for found in self._of(number):
            found.allow_fork(pid)

    def claim(self, number: int, session: int, members: tuple[int, ...]) -> None:
        """No fork of guest ``number`` is due any more, and ``members`` is all that may be there."""
        for found in self._of(number):
            found.withdraw_fork()
        with contextlib.suppress(LockFailed):  # what is sent SIGKILL runs no more, gone or not
            end_strays(session, members)

    def confine(self, request: Confine, done: Callable[[], None]) -> None:
        """Decide about guest ``request.id`` by a narrower plan, whose locks are ready for a copy.

        ``done`` is called when that copy is restricted. Raises OSError, ValueError, LockFailed
        where it can't be; then nothing is decided otherwise than before.
        """
        (gate_,), plan = self._of(request.id), request.plan
        landlock.lower(request.pid, Limits())  # whether that is possible
        made = landlock.ruleset(plan, self._layers[request.id])
        gate_.hold_to(
            most_tasks=plan.limits.max_processes, processes=plan.subprocess, network=plan.network
        )
        self._layers[request.id] += 1

        clear = partial(end_strays, request.session, (request.pid,))
        lower = partial(landlock.lower, request.pid, plan.limits)
        gate_.lock(notify.Lock(request.pid, made, clear, lower, done))

    def _of(self, number: int) -> list[notify.Gate]:
        return [found for found, whose in self._gates.values() if whose == number]

    def _take(self, fd: int) -> None:
        sock, number = self._awaited.pop(fd)
        self._poll.unregister(fd)
        with sock, contextlib.suppress(OSError):
            _, listeners, _, _ = socket.recv_fds(sock, 1, 1)
            if listeners and self._machine is not None:
                self._open(listeners[0], number)

    def _open(self, listener: int, number: int) -> None:
        os.set_inheritable(listener, False)
        assert self._machine is not None  # noqa: S101 - who calls has looked
        made = notify.Gate(
            listener,
            self._machine,
            most_tasks=self._plan.limits.max_processes,
            processes=self._plan.subprocess,
            network=self._plan.network,
        )
        self._gates[listener] = made, number
        self._layers[number] = 1
        self._poll.register(listener, select.POLLIN)

    def _forget(self, fd: int) -> None:
        self._poll.unregister(fd)
        found, number = self._gates.pop(fd)
        self._layers.pop(number, None)
        found.close()

    def forked(self, number: int, pid: int) -> None:
        """Take note of a fork; an earlier session of this number has nothing in it (setsid(2))."""
        self._sessions = {n: known for n, known in self._sessions.items() if known != pid}
        self._sessions[number] = pid

    def leave_alone(self, wish: int, forks: tuple[int, ...]) -> None:
        """Have whatever is in the sessions of these forks ended; ``ended`` says when it is."""
        for number in forks:
            for found in self._of(number):
                found.withdraw_fork()
        sessions = (self._sessions.pop(number, None) for number in forks)
        self._ending[wish] = frozenset(session for session in sessions if session is not None)

    def ended(self) -> tuple[int, ...]:
        """Kill what is left of what is to end; return the wishes of which nothing is."""
        if not self._ending:
            return ()
        own, alive = os.getsid(0), dict[int, int]()
        for pid in notify.descendants(os.getpid()):
            session = notify.session(pid)
            # A fork that has yet to begin a session is still in ours.
            alive[pid] = pid if session == own else session
        done = tuple(w for w, ends in self._ending.items() if ends.isdisjoint(alive.values()))
        for wish in done:
            del self._ending[wish]
        for pid, session in alive.items():
            if any(session in ends for ends in self._ending.values()):
                _kill(pid)
        return done

    def leave(self) -> None:
        """Close everything: for a fork, which must hold no listener."""
        for sock, _ in self._awaited.values():
            sock.close()
        for found, _ in self._gates.values():
            found.close()


def end_strays(session: int, members: tuple[int, ...]) -> None:
    """End what is in a guest's session and none of ``members``. Raises LockFailed.

    No process leaves its session, so all are looked at, and not who descends from whom: whoever
    dies hands its children over meanwhile. It is done when a look finds nothing that lives, since
    what one had begun to start may come after the look.
    """
    deadline = time.monotonic() + _PATIENCE
    while [pid for pid in _processes() if pid not in members and _kill_of(session, pid)]:
        if time.monotonic() > deadline:
            raise LockFailed("what a cell has started does not end")
        time.sleep(_PAUSE)


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _kill_of(session: int, pid: int) -> bool:
    """Kill a process if it is in this session; say whether it was, and lives."""
    if notify.session(pid) != session:
        return False
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # Looked at again: the number may have become another's before there was a descriptor.
        if select.select([fd], [], [], 0)[0] or notify.session(pid) != session:
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    return True


def _kill(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
