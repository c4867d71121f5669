"""The zygote: imports and prepares once, then forks a guest whenever the host asks.

It runs no user code. It dies with the host: the end of its control socket is the host's end,
and whatever descends from it is killed before it goes. Should it not come to that, its ``reaper``
does it.

Its ``Gatekeeper`` has the gates of its guests (``confine.notify``): it takes their listeners, and
answers the calls they stop.
"""

from __future__ import annotations

import array
import contextlib
import gc
import os
import select
import signal
import socket
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from cellblock.descriptors import remove_tree
from cellblock.guest import installed
from cellblock.guest.confine import (
    ConfineError,
    arch,
    confine_zygote,
    landlock,
    layer,
    notify,
    own_network,
    process,
    session_mounts,
    witness,
)
from cellblock.guest.confine.libc import LockFailed
from cellblock.guest.reaper import end_children
from cellblock.wire import frames, messages
from cellblock.wire.messages import Limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.guest.setup import Prepared
    from cellblock.wire.messages import AllowFork, BeginSession, KeepOnly, Narrow, Plan, Protect


#: Seconds of answers to a guest from which the host is told of them.
_TOLD = 0.05


class _Kept:
    """A gate, and the number of the guest under it."""

    def __init__(self, gate: notify.Gate, number: int) -> None:
        self.gate, self.number = gate, number
        #: Seconds that answers to each user took, and that the host has not been told of.
        self.seconds = defaultdict[int, float](float)


class Gatekeeper:
    """Every gate there is, in one poll loop.

    ``obey_pending`` is called before a gate is asked: it takes what the host has said until now, so
    that a fork which the host allowed is known to be allowed. ``tell`` sends the host a message.
    """

    def __init__(
        self,
        poll: select.poll,
        plan: Plan,
        obey_pending: Callable[[], None],
        tell: Callable[[messages.Answered | messages.Sessions | messages.UsesDevice], None],
    ) -> None:
        self._poll, self._plan, self._obey_pending = poll, plan, obey_pending
        self._tell = tell
        #: None where guests are under no gate: the filter that asks is one of the locks.
        self._machine = arch.current() if "seccomp" in plan.locks else None
        #: By descriptor: sockets on which a listener is to come, with the guest's number; gates.
        self._awaited: dict[int, tuple[socket.socket, int]] = {}
        self._gates: dict[int, _Kept] = {}
        #: By guest: the session that it began, and those of programs that it started.
        self._sessions: dict[int, notify.Sessions] = {}
        #: By the request to end them: guests whose sessions are ending.
        self._ending: dict[int, tuple[notify.Sessions, ...]] = {}

    def expect(self, number: int) -> socket.socket | None:
        """Return the socket on which guest ``number`` is to send its listener."""
        if self._machine is None:
            return None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)  # a guest has the other end: it is never waited for
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
            self._answer(fd)
        elif fd in self._gates and events & select.POLLHUP:
            self._forget(fd)  # nobody is under it any more
        # POLLERR says that a signal interrupted the look at it: the next one tells.

    def _answer(self, fd: int) -> None:
        """Answer a call, and have the time that it took counted for whose it was."""
        kept = self._gates[fd]
        began = time.thread_time()
        if not kept.gate.answer(self._obey_pending):
            self._forget(fd)
        user = kept.gate.asking
        kept.seconds[user] += time.thread_time() - began
        if kept.seconds[user] >= _TOLD:
            seconds = kept.seconds.pop(user)
            self._tell(messages.Answered(id=kept.number, user=user, seconds=seconds))

    def _take_listener(self, fd: int) -> None:
        sock, number = self._awaited.pop(fd)
        self._poll.unregister(fd)
        with sock, contextlib.suppress(OSError):
            _, listeners, _, _ = socket.recv_fds(sock, 1, 1)
            if listeners and self._machine is not None:
                listener = listeners[0]
                os.set_inheritable(listener, False)
                sessions = self._sessions.get(number, notify.Sessions())

                def use(pid: int) -> None:
                    self._tell(messages.UsesDevice(id=number, pid=pid))

                gate = notify.Gate(listener, self._machine, self._plan, sessions, use)
                self._gates[listener] = _Kept(gate, number)
                self._poll.register(listener, select.POLLIN)

    def _forget(self, fd: int) -> None:
        self._poll.unregister(fd)
        self._gates.pop(fd).gate.close()

    def _of(self, number: int) -> list[notify.Gate]:
        return [kept.gate for kept in self._gates.values() if kept.number == number]

    def obey(self, message: AllowFork | Protect | BeginSession | KeepOnly) -> None:
        """Do what the host asks for of one guest and its snapshots."""
        match message:
            case messages.AllowFork(id=number, pid=pid):
                self.allow_fork(number, pid)
            case messages.Protect(id=number, pid=snapshot):
                self.protect(number, snapshot)
            case messages.BeginSession():
                self.begin_session(message)
            case messages.KeepOnly():
                self.keep_only(message)

    def allow_fork(self, number: int, pid: int | None) -> None:
        """Let one more fork through, of ``pid``: guest ``number``, or a snapshot of it."""
        for gate in self._of(number):
            gate.allow_fork(pid)

    def protect(self, number: int, pid: int) -> None:
        """Let no cell of guest ``number`` signal a snapshot of it."""
        for gate in self._of(number):
            gate.protect(pid)

    def begin_session(self, request: BeginSession) -> None:
        """Let a snapshot begin a session, which is that of a fork of a sandbox."""
        if (sessions := self._sessions.get(request.id)) is not None:
            sessions.begin(request.pid, request.user)
        for gate in self._of(request.id):
            gate.allow_session(request.pid)

    def keep_only(self, request: KeepOnly) -> None:
        """Allow a guest no fork any more, and end what is in a user's sessions beside these."""
        for gate in self._of(request.id):
            gate.withdraw_fork(request.others)
        # Copies of the others that are being made, too.
        started = (pid for other in request.others for pid in notify.descendants(other))
        keep = (*request.pids, *request.others, *started)
        if (sessions := self._sessions.get(request.id)) is not None:
            with contextlib.suppress(LockFailed):
                notify.end_sessions(sessions, keep, request.user)

    def narrow(
        self,
        request: Narrow,
        done: Callable[[], None],
        there: session_mounts.SessionNamespaces | None = None,
    ) -> None:
        """Decide about guest ``request.id`` by a narrower plan, whose locks are ready for a copy.

        ``there`` are the mounts of its session, where it has some of its own. ``done`` is called
        when that copy is restricted. Raises OSError, ValueError, LockFailed where it can't be; then
        nothing is decided otherwise than before.
        """
        (gate,), plan = self._of(request.id), request.plan
        # Which network a zygote is in never changes, so none is given up for a private one.
        plan = msgspec.structs.replace(
            plan,
            loopback=plan.loopback and self._plan.loopback,
            local_sockets=plan.local_sockets and self._plan.local_sockets,
            attributes=plan.may_set_attributes(self._plan),
        )
        process.lower_limits(request.pid, Limits())  # whether that is possible
        namespaces = () if there is None else there.namespaces
        fd = landlock.ruleset(plan, request.rulesets, namespaces)
        alone = not request.fork
        if alone:  # a fork is under what its gate decides by already
            gate.plan = plan
        gate.expect_ruleset(notify.DueRuleset(request.pid, fd, plan.limits, done, alone=alone))

    def forked(self, number: int, pid: int) -> None:
        """Record a fork, which begins a session."""
        self._forget_session(pid)

        def tell(users: dict[int, int]) -> None:
            # The newest number is a process's of this guest, so that nobody else is in it.
            for other, known in self._sessions.items():
                if other != number:
                    for begun in users:
                        known.forget(begun)
            self._tell(messages.Sessions(id=number, sessions=users))

        self._sessions[number] = notify.Sessions(pid, tell, number)

    def _forget_session(self, pid: int) -> None:
        """Forget an earlier session of this number: nothing is in it any more (setsid(2))."""
        for known in self._sessions.values():
            known.forget(pid)

    def end_forks(self, request: int, forks: tuple[int, ...]) -> None:
        """Begin to end what is in the sessions of these forks; ``ended`` says when it is done."""
        for number in forks:
            for gate in self._of(number):
                gate.withdraw_fork()
        known = (self._sessions.pop(number, None) for number in forks)
        self._ending[request] = tuple(sessions for sessions in known if sessions is not None)

    def ended(self) -> tuple[int, ...]:
        """Kill what is left of what is to end; return the requests of which nothing is."""
        if not self._ending:
            return ()
        own, left = os.getsid(0), set[int]()
        for pid, session in notify.everybody():
            # A fork that has yet to begin a session is still in ours.
            number = pid if session == own else session
            for request, ends in self._ending.items():
                is_in = any(number in sessions for sessions in ends)
                if is_in and notify.descends(pid, os.getpid()):
                    left.add(request)
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
        done = tuple(request for request in self._ending if request not in left)
        for request in done:
            del self._ending[request]
        return done

    def close(self) -> None:
        """Close everything: for a fork, which must hold no listener."""
        for sock, _ in self._awaited.values():
            sock.close()
        for kept in self._gates.values():
            kept.gate.close()


#: Descriptors of a guest: channel, stdout, stderr.
_TARGETS = 3
#: What the first process in a pid namespace is called there; all others end with it.
_FIRST = 1
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Characters of why locks could not be laid.
_LONGEST = 500


def main(control_fd: int, reaper: int, mounter_fd: int) -> NoReturn:
    """Serve the control socket until the host is gone.

    ``reaper`` is a pipe to our parent, which removes the guests' folder in the end. Where it is
    negative there is none, and that is ours to do. ``mounter_fd`` is our line to the mounter.
    """
    # Until a guest can act on it, an interrupt must not end it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = _Control(socket.socket(fileno=control_fd))
    process.set_name("zygote")
    os.environ.clear()  # what wraps us may have put something there; the host tells what is to be
    os.environ["HOME"] = os.devnull  # until there is one: else libraries ask the user database
    gc.disable()  # nothing made while importing is garbage: looking for it costs a tenth of it
    try:
        # It holds what the policy passes on, and guests are made of it (promise P2).
        process.isolate_zygote(namespace=os.getpid() == _FIRST)
        installed.note_compiled()
        # What every guest needs, while the host still reads its policy.
        from cellblock.guest import setup  # noqa: PLC0415 - as said

        request, above = control.receive_prepare()
        witness.check_mounts(request.plan.mounted, request.mounts)
        request, mounter, sessions = _lay(request, socket.socket(fileno=mounter_fd), control)
        # Before the locks: a policy may let cells read a part of a layer alone.
        seen = {each.root: os.open(each.root, _FOLDER) for each in request.plan.layers}
        if "container" in request.plan.locks:
            seen[request.scratch] = os.open(request.scratch, _FOLDER)
        folder = request.scratch
        if reaper >= 0:
            os.write(reaper, os.fsencode(folder))
            os.close(reaper)
            folder = ""
        _confine(request)
        prepared = setup.prepare(request)
        if sessions is not None:
            sessions.wait()
        gc.freeze()
    except EOFError:
        os._exit(0)
    except ConfineError as exc:
        control.send(messages.ZygoteFailed(detail=str(exc)))
        os._exit(1)
    except BaseException as exc:
        control.send(messages.ZygoteFailed(detail=f"{type(exc).__name__}: {exc}"))
        os._exit(1)
    gc.enable()
    for path, opened in seen.items():
        control.send(messages.SeenFolder(path=path), opened)
    if messages.SHARED_MEMORY in request.plan.write_roots and sessions is None:
        control.send(messages.SharedMemory(), os.open(messages.SHARED_MEMORY, _FOLDER))
    control.send(messages.Obeyed())
    _Zygote(control, prepared, folder, above, mounter, sessions).serve()


def _lay(
    request: messages.Prepare, line: socket.socket, control: _Control
) -> tuple[messages.Prepare, layer.Mounter, session_mounts.SessionMounter | None]:
    """Lay layers for all guests; or have a mounter begin that makes each session's mounts.

    And have listed hosts be neighbours. Return what is asked for with what was found to hold, and
    the lines to the mounter.
    """
    layers, sessions = request.plan.layers, None
    if request.plan.own_mounts:
        sessions = session_mounts.SessionMounter(line.dup(), request.plan, control.send)
    mounter = layer.Mounter(line, layers)
    _enter_namespaces(request)
    for number, listener in own_network.listen(request.plan.neighbours):
        control.send(messages.Listening(number=number), listener)
    if request.plan.serves:
        control.send(messages.OwnNetwork(), own_network.diagnosing_socket())
    if not layers:
        mounter.close()
        return request, mounter, sessions
    empty = layer.lay(layers, request.plan.shared_memory)
    request = _sealed(request)
    mounter.begin(layers, empty)
    mounter.cover(layers)
    return request, mounter, None


def _enter_namespaces(request: messages.Prepare) -> None:
    """Enter the namespaces that layers and neighbours take, if any. Raises ConfineError."""
    plan = request.plan
    wrapped = "namespaces" in plan.locks
    # Where something wraps us, that has made a network already; but not one that we may change.
    alone = plan.loopback and (not wrapped or bool(plan.neighbours) or plan.serves)
    if "container" in plan.locks or not (plan.layers or alone):
        return
    try:
        layer.enter_namespaces()
        if alone:
            own_network.enter()
        if plan.neighbours:
            own_network.settle(plan.neighbours, request.scratch)
    except (OSError, LockFailed) as error:
        number = error.errno or 0
        raise ConfineError("network", number, "" if number else str(error)) from error


def _sealed(request: messages.Prepare) -> messages.Prepare:
    """Have what cells do not write be read-only, and know of it, where that can be."""
    plan = request.plan
    writable = (*plan.write_roots, *(each.root for each in plan.layers), request.scratch)
    sealed = layer.seal(writable, apart="namespaces" in plan.locks)
    # A layer that a session wrote to before it narrowed its policy is still laid.
    sealed = sealed and plan.lets_write(writable)
    return msgspec.structs.replace(request, plan=msgspec.structs.replace(plan, attributes=sealed))


def _confine(request: messages.Prepare) -> None:
    """Take the locks of guests before anything is imported that a policy names.

    Beyond theirs, it reads what it preloads, and of processes what it decides by; and it makes a
    folder for itself in the scratch folder, whether guests may write there or not.
    """
    plan = request.plan
    plan = msgspec.structs.replace(
        plan,
        read_roots=(*plan.read_roots, *request.preloaded, "/proc"),
        write_roots=(*plan.write_roots, os.path.realpath(request.scratch)),
    )
    confine_zygote(plan, around=not {"namespaces", "container"}.isdisjoint(plan.locks))


class _Control:
    """The socket to the host: frames, and descriptors beside them."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def fileno(self) -> int:
        return self._sock.fileno()

    def receive_prepare(self) -> tuple[messages.Prepare, list[int]]:
        message, fds = self.receive()
        if not isinstance(message, messages.Prepare):
            raise TypeError("the first frame must be Prepare")
        return message, fds

    def receive(self) -> tuple[Any, list[int]]:
        """Return a message and its descriptors. Raises EOFError, OSError when the host is gone.

        A frame may be as long as the host makes it: nobody else writes here.
        """
        header, fds = self._receive_exactly(frames.HEADER)
        body, _ = self._receive_exactly(int.from_bytes(header, "big"))
        return msgspec.msgpack.decode(body, type=messages.ToZygote), fds

    def _receive_exactly(self, size: int) -> tuple[bytes, list[int]]:
        data, fds = b"", array.array("i")
        while len(data) < size:
            space = socket.CMSG_SPACE(_TARGETS * fds.itemsize)
            part, ancillary, _, _ = self._sock.recvmsg(size - len(data), space)
            for level, kind, payload in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
            if not part:
                raise EOFError
            data += part
        return data, list(fds)

    def send(self, message: msgspec.Struct, fd: int | None = None) -> None:
        """Send ``message``, with a descriptor that is closed then.

        A host that is gone is seen by the poll, as the end of its socket.
        """
        with contextlib.suppress(OSError):
            frame = frames.encode(message)
            if fd is None:
                self._sock.sendall(frame)
            else:
                socket.send_fds(self._sock, [bytes(frame)], [fd])
        if fd is not None:
            os.close(fd)

    def shut_down(self) -> None:
        self._sock.shutdown(socket.SHUT_RDWR)


class _Zygote:
    """Forks guests, and answers for them at their gates.

    ``folder`` is the guests', where no reaper removes it; ``above`` has a descriptor of what that
    lies in, where it is out of our sight; ``mounter`` may be asked where there are layers,
    ``sessions`` where each guest has mounts of its own.
    """

    def __init__(
        self,
        control: _Control,
        prepared: Prepared,
        folder: str,
        above: list[int],
        mounter: layer.Mounter,
        sessions: session_mounts.SessionMounter | None,
    ) -> None:
        self._control, self._prepared = control, prepared
        self._folder, self._above, self._mounter = folder, above, mounter
        self._sessions = sessions
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._poll.register(self._wake_read, select.POLLIN)
        self._control_poll = select.poll()
        self._control_poll.register(control, select.POLLIN)
        plan = prepared.request.plan
        self._gates = Gatekeeper(self._poll, plan, self._obey_all, control.send)

    def serve(self) -> NoReturn:
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            for fd, events in self._poll.poll():
                if fd == self._wake_read:
                    os.read(fd, 1024)
                    self._reap()
                    self._report_ended()
                elif self._gates.concerns(fd):
                    self._gates.act(fd, events)
                elif fd == self._control.fileno():
                    self._obey_all()

    def _obey_all(self) -> None:
        """Do what the host has asked for until now."""
        while self._control_poll.poll(0):
            self._obey()

    def _obey(self) -> None:
        """Do one thing that the host asks for; its end is ours."""
        try:
            message, fds = self._control.receive()
        except (EOFError, OSError):
            self._end()
        self._do(message, fds)
        self._control.send(messages.Obeyed())

    def _do(self, message: Any, fds: list[int]) -> None:
        match message:
            case messages.Fork() if len(fds) == _TARGETS:
                self._fork(message, fds)
            case (
                messages.AllowFork()
                | messages.Protect()
                | messages.BeginSession()
                | messages.KeepOnly()
            ):
                self._gates.obey(message)
            case messages.EndForks():
                self._end_forks(message)
            case messages.Narrow():
                self._narrow(message)
            case messages.Refresh():
                failure = self._refresh()
                self._control.send(messages.Refreshed(id=message.id, failure=failure))
            case messages.Ping():
                pass  # that it was taken up is the answer
            case messages.Quit():
                end_children()
                os._exit(1)  # not 0: the reaper would remove their folder

    def _end_forks(self, message: messages.EndForks) -> None:
        self._gates.end_forks(message.id, message.forks)
        if self._sessions is not None:
            self._sessions.end_forks(message.forks)
        self._report_ended()

    def _narrow(self, message: Narrow) -> None:
        ticket = message.ticket
        done = messages.Narrowed(ticket=ticket)
        answer = messages.Narrowed(ticket=ticket, ready=True)
        try:
            there = None if self._sessions is None else self._sessions.of_fork(message.id)
            if not message.fork:
                self._mounter.cover(message.plan.layers)
            self._gates.narrow(message, lambda: self._control.send(done), there)
        except Exception as error:  # whatever it is, it is this guest's alone
            failure = str(error)[:_LONGEST] or type(error).__name__
            answer = messages.Narrowed(ticket=ticket, failure=failure)
        self._control.send(answer)

    def _refresh(self) -> str:
        """Have layers forget what they looked up; return why that failed, or nothing."""
        try:
            self._mounter.refresh()
        except OSError as error:
            return error.strerror or str(error)[:_LONGEST]
        return ""

    def _fork(self, request: messages.Fork, fds: list[int]) -> None:
        """Fork a guest, which gets ``fds``, and tell the host."""
        there, failure = self._mounts_of(request)
        listening = self._gates.expect(request.id)
        if listening is not None:
            fds = [*fds, listening.detach()]
        try:
            pid = os.fork()
        except OSError as error:  # of a pool, the other guests go on
            detail = f"no process could be made for it: {error.strerror}"
            self._control.send(messages.ForkFailed(id=request.id, detail=detail))
            pid = -1
        if pid:
            for fd in fds:
                os.close(fd)
            if pid > 0:
                self._gates.forked(request.id, pid)
                # The pid may be another's when the host acts, the pidfd not. It is valid whatever
                # has become of the guest, since nobody but us reaps it (pidfd_open(2)).
                self._control.send(messages.Forked(id=request.id, pid=pid), os.pidfd_open(pid))
            return
        status = 1
        try:
            if there is not None:
                failure = there.enter()
            self._become_guest(request, fds, failure)
            status = 0
        except SystemExit:
            status = 0
        except BaseException as exc:
            os.write(2, f"cellblock guest: {type(exc).__name__}: {exc}\n".encode())
        finally:
            os._exit(status)

    def _mounts_of(
        self, request: messages.Fork
    ) -> tuple[session_mounts.SessionNamespaces | None, ConfineError | None]:
        """Return the namespaces that a fork is to enter, if any, and why they can't be had."""
        if self._sessions is None or not request.mounts:
            return None, None
        try:
            return self._sessions.enter_fork(request.id, request.mounts), None
        except OSError as error:
            return None, ConfineError("namespaces", error.errno or 0, "a session's mounts")

    def _become_guest(
        self, request: messages.Fork, fds: list[int], failure: ConfineError | None
    ) -> None:
        """Let go of all that is a zygote's, and serve as a guest."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        for fd in (self._wake_read, self._wake_write, self._control.fileno(), *self._above):
            os.close(fd)
        self._gates.close()
        self._mounter.close()
        self._prepared.become_guest(fds, request, failure)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                session = os.getsid(found.si_pid)  # nobody knows it once that is reaped
                pid, status, used = os.wait4(found.si_pid, 0)
                seconds = used.ru_utime + used.ru_stime
                self._control.send(
                    messages.Reaped(pid=pid, status=status, session=session, seconds=seconds)
                )

    def _report_ended(self) -> None:
        """Tell the host of which guests nothing is left."""
        for number in self._gates.ended():
            self._control.send(messages.ForksEnded(id=number))

    def _end(self) -> NoReturn:
        """Kill everything that descends from here, hang up, have the guests' folder removed, go.

        A host that lives waits for the hanging up; nobody has to wait for what a guest left.
        """
        end_children()
        self._control.shut_down()  # the reaper has it, too
        if self._folder:
            remove_tree(self._folder)
        private, name = os.path.split(self._folder)
        for above, each in zip(self._above, (name, os.path.basename(private)), strict=False):
            with contextlib.suppress(OSError):
                os.rmdir(each, dir_fd=above)
        os._exit(0)
