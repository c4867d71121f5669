"""``Simulation``: a session without processes, with a clock, zygote and guests driven by the test."""

from __future__ import annotations

import contextlib
import errno
import heapq
import itertools
import os
import select
import signal
import socket
import struct
from functools import partial
from pathlib import Path

import msgspec

from cellblock.analysis import Rules
from cellblock.host.audit.recorder import Audit
from cellblock.host.consent.admission import AdmissionGate
from cellblock.host.guests.process import Guest
from cellblock.host.guests.zygote import ZygoteSource
from cellblock.host.session.session import Session
from cellblock.host.session.types import SessionSettings
from cellblock.policy.model import Policy
from cellblock.wire import frames, messages

NOBODYS_PID = 2**22 + 7  # beyond any pid_max
_PIDS = itertools.count(NOBODYS_PID + 10_000)


class Reactor:
    """``host.reactor.Reactor`` over a clock that the test moves."""

    def __init__(self):
        self.now = 0.0
        self._timers, self._serial, self._fds = [], itertools.count(), {}

    def watch(self, fd, on_ready, *, read=True, write=False):
        self._fds[fd] = (on_ready, read, write)

    def unwatch(self, fd):
        self._fds.pop(fd, None)

    def call_later(self, seconds, action):
        timer = Timer(action)
        heapq.heappush(self._timers, (self.now + seconds, next(self._serial), timer))
        return timer

    def expect(self):
        pass

    def turn(self):
        """Call back for all descriptors that are ready, until none is."""
        while self._fds:
            poll = select.poll()
            for fd, (_, read, write) in self._fds.items():
                mask = (select.POLLIN if read else 0) | (select.POLLOUT if write else 0)
                if mask:
                    poll.register(fd, mask)
            ready = poll.poll(0)
            if not ready:
                return
            for fd, _ in ready:
                if fd in self._fds:
                    self._fds[fd][0]()

    def advance(self, seconds):
        """Let time pass, and run timers and callbacks that are due."""
        end = self.now + seconds
        self.turn()
        while self._timers and self._timers[0][0] <= end:
            self.now, _, timer = heapq.heappop(self._timers)
            if timer.action is not None:
                timer.action()
            self.turn()
        self.now = end


class Timer:
    def __init__(self, action):
        self.action = action

    def cancel(self):
        self.action = None


class FakeGuest:
    """The guest's end of its channel, driven by the test."""

    def __init__(self, fds, pid):
        self.sock = socket.socket(fileno=fds[0])
        self.out, self.err = (open(fd, "wb", buffering=0) for fd in fds[1:])  # noqa: SIM115, PTH123
        self.pid, self.signals = pid, []
        #: The copies that the host has asked for, and whether the host has hung up.
        self.copies, self.hung_up = [], False
        self._fds, self._heard = [], []
        self._splitter = frames.Splitter()
        self._decode = frames.Decoder(messages.ToGuest)

    def send(self, *answers):
        for answer in answers:
            self.sock.sendall(frames.encode(answer))

    def read(self):
        """Return the host's messages since the last call, without requests for copies."""
        self._hear()
        heard, self._heard = self._heard, []
        return heard

    def _hear(self):
        """Receive the host's messages. A request for a copy makes a ``FakeCopy``, not ready yet."""
        found = []
        self.sock.setblocking(False)
        try:
            while not self.hung_up:
                data, fds, *_ = socket.recv_fds(self.sock, 1 << 20, 3)
                self.hung_up, self._fds = not data, self._fds + fds
                found += [self._decode(payload) for payload in self._splitter.feed(data)]
        except BlockingIOError:
            pass
        except ConnectionResetError:
            self.hung_up = True
        finally:
            self.sock.setblocking(True)
        for asked in (m for m in found if isinstance(m, messages.Snapshot)):
            fds, self._fds = self._fds[:3], self._fds[3:]
            self.copies.append(FakeCopy(fds, next(_PIDS), asked.id, self))
        self._heard += [m for m in found if not isinstance(m, messages.Snapshot)]

    def copy(self):
        """Return the newest copy that the host has asked for."""
        self._hear()
        return self.copies[-1]

    def gone(self):
        """Return whether the host has hung up."""
        self._hear()
        return self.hung_up

    def close(self):
        for file in (self.sock, self.out, self.err):
            file.close()


class FakeCopy(FakeGuest):
    """A copy forked by ``maker``, which the test lets get ready and take over."""

    def __init__(self, fds, pid, number, maker):
        super().__init__(fds, pid)
        self.number, self.maker, self.stood = number, maker, False

    def twin(self):
        """Return the twin that the host has asked this copy for, or None if there is none."""
        if self.sock.fileno() >= 0:
            self._hear()
        left = [copy for copy in self.copies if copy.sock.fileno() >= 0]
        return left[-1] if left else None


_NO_SNAPSHOTS = Policy().replace(snapshots="off")


class Simulation:
    """A session, the calls to its front (``notes``), and its guests, newest last."""

    def __init__(  # noqa: PLR0913 - what a session is made of
        self,
        monkeypatch,
        *,
        timeout=10.0,
        required=(),
        language=True,
        policy=_NO_SNAPSHOTS,
        audit=None,
        gate=None,
        narrower=None,
        approver=None,
        ahead=None,
    ):
        self.reactor = Reactor()
        self.guests, self.notes, self.outcomes, self.kills = [], [], [], []
        #: The shells whose cells were sent to a guest.
        self.shells_sent = []
        self.start_well = True
        #: Whether the zygote answers nothing.
        self.zygote_hangs = False
        #: How many of the next zygotes can't be spawned, or end at once.
        self.spawns_to_fail = self.deaths = 0
        self.refusal = ""
        self.answers_questions = True
        self._ends = []
        #: The zygote's other messages from the host.
        self.told = []
        self._standing, self._pidfds = None, {}
        self._fake_vouching(monkeypatch)
        monkeypatch.setattr("cellblock.host.guests.process.os.kill", self._kill)
        # By this clock, collecting the test's own garbage takes no time of a guest's.
        monkeypatch.setattr("cellblock.host.guests.process.thread_time", lambda: self.reactor.now)
        rules = Rules(
            language=language,
            modules={"math": None},
            raw_modules=frozenset(),
            magics=frozenset({"policy", "time", "undo"}),
            approvals=approver is not None,
        )
        prepare = messages.Prepare(
            rules={}, preload=(), pre_imported=(), policy_name="p", ipython_dir="/x",
            scratch="/x", cwd="/x", environment={}, plan=messages.Plan(required=required),
        )  # fmt: skip
        self.audit = Audit() if audit is None else audit
        settings = SessionSettings(
            policy=policy.replace(timeout=timeout),
            rules=rules,
            gate=AdmissionGate(Policy(), Path("/x")) if gate is None else gate,
            prepare=prepare,
            zygote=self.spawn,
        )
        self.session = Session(
            self.reactor,
            self,
            settings,
            ZygoteSource(self.reactor, self.spawn, ahead=ahead and partial(ahead, self)),
            clock=lambda: self.reactor.now,
            narrower=narrower,
            approver=approver,
        )

    # --- the host's side ----------------------------------------------------------------------

    def run(self, cell, finish=None):
        """Execute a cell; its outcome is appended to ``outcomes``."""
        self.session.execute(cell, finish or self.outcomes.append)
        self.reactor.turn()

    def on_tools(self, tools):
        """Ignore the tools."""

    def tell(self, text):
        self.on_output(text)

    def on_output(self, message):
        self.notes.append(("shown", message))

    def on_sent(self, subshell):
        self.shells_sent.append(subshell)

    def on_question(self, request):
        self.notes.append(("asked", request))
        return self.answers_questions

    def stop_holding(self):
        self.notes.append(("hurried", None))

    def on_restart(self, stopped):
        self.notes.append(("restarted", stopped))

    def on_notice(self, text):
        self.notes.append(("noticed", text))

    def on_undo(self, stopped):
        self.notes.append(("undone", stopped))

    def on_failure(self, detail):
        self.notes.append(("failed", detail))

    def on_locks(self, report):
        self.notes.append(("locked", report))
        return self.refusal

    # --- the other side -----------------------------------------------------------------------

    @property
    def guest(self):
        return self.guests[-1]

    def _fake_vouching(self, monkeypatch):
        """Let the host accept copies without processes, whose credentials it asks the OS for."""

        real = Guest._take_credentials

        def take_credentials(guest, _):
            real(guest, [])
            guest.pid = self._standing

        def sender_is_ours(guest):
            if guest.pidfd is None:
                guest.pidfd = os.open(os.devnull, os.O_RDONLY)
                self._pidfds[guest.pidfd] = guest.pid
            return True

        monkeypatch.setattr(Guest, "_take_credentials", take_credentials)
        monkeypatch.setattr(Guest, "sender_is_ours", sender_is_ours)
        # All copies are in the session of the newest guest that is not a copy.
        monkeypatch.setattr("cellblock.host.guests.process.os.getsid", self._session_of)
        monkeypatch.setattr(
            "cellblock.host.guests.process.signal.pidfd_send_signal",
            lambda fd, number: self._kill(self._pidfds[fd], number),
        )

    def _session_of(self, pid, real=os.getsid):
        if pid < NOBODYS_PID:
            return real(pid)
        return next(one.pid for one in self.guests[::-1] if not isinstance(one, FakeCopy))

    def stands(self, copy):
        """Let a copy report that it is ready."""
        self._standing, copy.stood = copy.pid, True
        copy.send(messages.SnapshotReady(id=copy.number))
        self.reactor.turn()

    def leaves_twin(self, copy):
        """Let a copy that takes over fork the twin that the host asks for; return the twin."""
        twin = copy.twin()
        self.stands(twin)
        copy.send(messages.SnapshotReady(id=twin.number))
        self.reactor.turn()
        return twin

    def takes_over(self, copy, *, leaves_twin=True, **lost):
        """Let a copy take over, and fork a twin if asked for one; return the host's Resume."""
        twin = copy.twin()
        if leaves_twin and twin is not None and not twin.stood:
            self.leaves_twin(copy)
        (resume,) = copy.read()
        assert isinstance(resume, messages.Resume)
        self.guests.append(copy)
        copy.send(messages.Resumed(**lost))
        self.reactor.turn()
        return resume

    def _kill(self, pid, number):
        self.kills.append((pid, number))

    def spawn(self):
        """Start a simulated zygote, whose guests the test drives."""
        if self.spawns_to_fail:
            self.spawns_to_fail -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        ours, theirs = socket.socketpair()
        if self.deaths:
            self.deaths -= 1
            theirs.close()
            return ours, NOBODYS_PID
        self._ends.append(theirs)
        self.reactor.watch(theirs.fileno(), lambda: self._serve(theirs))
        return ours, NOBODYS_PID

    def _serve(self, sock):
        data, fds, *_ = socket.recv_fds(sock, 1 << 20, 3)
        if not data:
            self.reactor.unwatch(sock.fileno())
            sock.close()
            return
        while data:
            (size,) = struct.unpack_from(">I", data)
            message = msgspec.msgpack.decode(data[4 : 4 + size], type=messages.ToZygote)
            data = data[4 + size :]
            if not isinstance(message, messages.Fork):
                self.told += [message] * (not isinstance(message, messages.Ping))
            else:
                guest = FakeGuest(fds, NOBODYS_PID + 1 + len(self.guests))
                (guest.place,) = guest.read()
                self.guests.append(guest)
                sock.sendall(frames.encode(messages.Forked(id=message.id, pid=guest.pid)))
                if self.start_well:
                    guest.send(messages.Ready(report=messages.LockReport()))
            if not self.zygote_hangs:
                with contextlib.suppress(BrokenPipeError):  # the host has ended the zygote
                    sock.sendall(frames.encode(messages.Obeyed()))

    def reaped(self, status):
        """End the newest guest, and let the zygote report its exit status."""
        self.guest.close()
        self.tell_reaped(self.guest, status)
        self.reactor.turn()

    def tell_reaped(self, guest, status):
        """Let the zygote report that a guest has ended, without closing the guest's channel."""
        self._ends[-1].sendall(frames.encode(messages.Reaped(pid=guest.pid, status=status)))

    def kill_zygote(self):
        """End the zygote."""
        end = self._ends.pop()
        self.reactor.unwatch(end.fileno())
        end.close()
        self.reactor.turn()

    def signals(self):
        """Return the signals sent since the last call, without SIGURG, which only wakes."""
        sent, self.kills = [number for _, number in self.kills], []
        return [number for number in sent if number != signal.SIGURG]

    def close(self):
        self.session.close()
        for guest in self.guests:
            for copy in guest.copies:
                copy.close()
            guest.close()
        for end in self._ends:
            end.close()
