"""The gates of a zygote's guests: taking their listeners, answering the calls they stop."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from typing import TYPE_CHECKING

from cellblock.guest.confine import arch, landlock, notify, process
from cellblock.guest.confine.libc import LockFailed
from cellblock.wire.messages import Limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.wire.messages import KeepOnly, Narrow, Plan


class Gatekeeper:
    """Every gate there is, in one poll loop.

    ``obey_pending`` is called before a gate is asked: it takes what the host has said until now, so
    that a fork which the host allowed is known to be allowed.
    """

    def __init__(self, poll: select.poll, plan: Plan, obey_pending: Callable[[], None]) -> None:
        self._poll, self._plan, self._obey_pending = poll, plan, obey_pending
        #: None where guests are under no gate: the filter that asks is one of the locks.
        self._machine = arch.current() if "seccomp" in plan.locks else None
        #: By descriptor: sockets on which a listener is to come, and gates; each guest's number.
        self._awaited: dict[int, tuple[socket.socket, int]] = {}
        self._gates: dict[int, tuple[notify.Gate, int]] = {}
        #: By guest: the session that it began.
        self._sessions: dict[int, int] = {}
        #: By the request to end them: sessions that are ending.
        self._ending: dict[int, frozenset[int]] = {}

    def expect(self, number: int) -> socket.socket | None:
        """Return the socket on which guest ``number`` is to send its listener."""
        if self._machine is None:
            return None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._awaited[ours.fileno()] = ours, number
        self._poll.register(ours, select.POLLIN)
        return theirs

    def concerns(self, fd: int) -> bool:
        """Whether ``fd`` is one of ours."""
        return fd in self._awaited or fd in self._gates

    def act(self, fd: int, events: int) -> None:
        """Do what is due on ``fd``, which may have gone meanwhile."""
        if fd in self._awaited:
            self._take_listener(fd)
        elif fd in self._gates and events & select.POLLIN:
            self._obey_pending()
            if fd in self._gates and not self._gates[fd][0].answer():
                self._forget(fd)
        elif fd in self._gates and events & select.POLLHUP:
            self._forget(fd)  # nobody is under it any more
        # POLLERR says that a signal interrupted the look at it: the next one tells.

    def _take_listener(self, fd: int) -> None:
        sock, number = self._awaited.pop(fd)
        self._poll.unregister(fd)
        with sock, contextlib.suppress(OSError):
            _, listeners, _, _ = socket.recv_fds(sock, 1, 1)
            if listeners and self._machine is not None:
                listener = listeners[0]
                os.set_inheritable(listener, False)
                self._gates[listener] = notify.Gate(listener, self._machine, self._plan), number
                self._poll.register(listener, select.POLLIN)

    def _forget(self, fd: int) -> None:
        self._poll.unregister(fd)
        gate, _ = self._gates.pop(fd)
        gate.close()

    def _of(self, number: int) -> list[notify.Gate]:
        return [gate for gate, whose in self._gates.values() if whose == number]

    def allow_fork(self, number: int, pid: int | None) -> None:
        """Let one more fork through, of ``pid``: guest ``number``, or a snapshot of it."""
        for gate in self._of(number):
            gate.allow_fork(pid)

    def keep_only(self, request: KeepOnly) -> None:
        """Allow a guest no fork any more, and end what is in its session beside these."""
        for gate in self._of(request.id):
            gate.withdraw_fork(request.others)
        started = (pid for other in request.others for pid in notify.descendants(other))
        keep = (*request.pids, *request.others, *started)
        with contextlib.suppress(LockFailed):  # what is sent SIGKILL runs no more, gone or not
            notify.end_session(request.session, keep=keep)

    def narrow(self, request: Narrow, done: Callable[[], None]) -> None:
        """Decide about guest ``request.id`` by a narrower plan, whose locks are ready for a copy.

        ``done`` is called when that copy is restricted. Raises OSError, ValueError, LockFailed
        where it can't be; then nothing is decided otherwise than before.
        """
        (gate,), plan = self._of(request.id), request.plan
        process.lower_limits(request.pid, Limits())  # whether that is possible
        fd, alone = landlock.ruleset(plan, request.rulesets), not request.fork
        if alone:  # a fork is under what its gate decides by already
            gate.plan = plan
        gate.expect_ruleset(
            notify.DueRuleset(request.pid, request.session, fd, plan.limits, done, alone=alone)
        )

    def forked(self, number: int, pid: int) -> None:
        """Record a fork; an earlier session of this number has nothing in it (setsid(2))."""
        self._sessions = {n: known for n, known in self._sessions.items() if known != pid}
        self._sessions[number] = pid

    def end_forks(self, request: int, forks: tuple[int, ...]) -> None:
        """Begin to end what is in the sessions of these forks; ``ended`` says when it is done."""
        for number in forks:
            for gate in self._of(number):
                gate.withdraw_fork()
        sessions = (self._sessions.pop(number, None) for number in forks)
        self._ending[request] = frozenset(session for session in sessions if session is not None)

    def ended(self) -> tuple[int, ...]:
        """Kill what is left of what is to end; return the requests of which nothing is."""
        if not self._ending:
            return ()
        own, alive = os.getsid(0), dict[int, int]()
        for pid in notify.descendants(os.getpid()):
            session = notify.session(pid)
            # A fork that has yet to begin a session is still in ours.
            alive[pid] = pid if session == own else session
        done = tuple(r for r, ends in self._ending.items() if ends.isdisjoint(alive.values()))
        for request in done:
            del self._ending[request]
        for pid, session in alive.items():
            if any(session in ends for ends in self._ending.values()):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        return done

    def close(self) -> None:
        """Close everything: for a fork, which must hold no listener."""
        for sock, _ in self._awaited.values():
            sock.close()
        for gate, _ in self._gates.values():
            gate.close()
