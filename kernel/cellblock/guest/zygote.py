"""The zygote: imports and prepares once, then forks a guest whenever the host asks.

``main`` is started once per zygote, below the ``reaper``. It receives ``Prepare``, mounts layers,
takes the locks of its widest guest, and has ``setup`` import and build what all guests share. Then
``_Zygote`` serves the host's messages and the gates of its guests, in one poll loop:

    starting ── Prepare ──> confined ── Obeyed ──> serving ── host gone, or Quit ──> ended
        └──── before Obeyed, any failure: ZygoteFailed ──────────────────────────────^

The zygote runs no user code. It ends with the host: when the control socket reaches its end, the
zygote kills all its descendants, then exits. If the zygote is killed before it can do so, the
``reaper`` kills them.

The ``Gatekeeper`` owns the gates of all guests (``confine.notify``): it takes their listeners and
answers the calls that they stop.
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


#: Seconds spent on answers to one user after which the host is sent ``Answered``. Shorter times
#: are added up first, so that not every stopped call costs a message.
_REPORTED_SECONDS = 0.05


class _GuestGate:
    """A gate, the number of the guest under it, and the time that its answers took."""

    def __init__(self, gate: notify.Gate, number: int) -> None:
        self.gate = gate
        self.number = number
        #: By user: seconds that the zygote spent on answers and has not yet reported to the host.
        self.seconds = defaultdict[int, float](float)


class Gatekeeper:
    """The gates of all guests, in the zygote's poll loop.

    ``obey_pending`` handles every message that the host has sent until now. A gate calls it before
    it decides, so that a fork that the host has just allowed is not refused. ``tell`` sends a
    message to the host.
    """

    def __init__(
        self,
        poll: select.poll,
        plan: Plan,
        obey_pending: Callable[[], None],
        tell: Callable[[messages.Answered | messages.Sessions | messages.UsesDevice], None],
    ) -> None:
        self._poll = poll
        self._plan = plan
        self._obey_pending = obey_pending
        self._tell = tell
        #: None if guests have no gate: the gate is part of the lock "seccomp".
        self._machine = arch.current() if "seccomp" in plan.locks else None
        #: By descriptor: sockets on which a guest will send its listener, with the guest's number.
        self._awaited: dict[int, tuple[socket.socket, int]] = {}
        #: By the listener's descriptor.
        self._gates: dict[int, _GuestGate] = {}
        #: By guest number: the sessions (setsid(2)) of the guest and of the programs it started.
        self._sessions: dict[int, notify.Sessions] = {}
        #: By the id of the ``EndForks`` message: the sessions that are being ended.
        self._ending: dict[int, tuple[notify.Sessions, ...]] = {}

    def expect(self, number: int) -> socket.socket | None:
        """Return the socket through which guest ``number`` must send its listener.

        Return None if guests have no gate.
        """
        if self._machine is None:
            return None
        zygote_end, guest_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        zygote_end.setblocking(False)  # a guest has the other end: it is never waited for
        self._awaited[zygote_end.fileno()] = zygote_end, number
        self._poll.register(zygote_end, select.POLLIN)
        return guest_end

    def concerns(self, fd: int) -> bool:
        """Return whether ``fd`` belongs to a gate or to a guest that will send its listener."""
        return fd in self._awaited or fd in self._gates

    def act(self, fd: int, events: int) -> None:
        """Handle poll events of ``fd``, which an earlier event of the same poll may have closed."""
        if fd in self._awaited:
            self._take_listener(fd)
        elif fd in self._gates and events & select.POLLIN:
            self._answer(fd)
        elif fd in self._gates and events & select.POLLHUP:
            self._forget(fd)  # the last process under this gate has ended
        # POLLERR means that a signal interrupted the kernel's look at the listener. The next poll
        # reports what is pending.

    def _answer(self, fd: int) -> None:
        """Answer one stopped call, and count the processor time for the user who made it."""
        guest = self._gates[fd]
        began = time.thread_time()
        if not guest.gate.answer(self._obey_pending):
            self._forget(fd)
        user = guest.gate.asking
        guest.seconds[user] += time.thread_time() - began
        if guest.seconds[user] >= _REPORTED_SECONDS:
            seconds = guest.seconds.pop(user)
            self._tell(messages.Answered(id=guest.number, user=user, seconds=seconds))

    def _take_listener(self, fd: int) -> None:
        """Receive a guest's listener and put its gate into the poll loop.

        The socket is closed whatever came: a guest has one attempt.
        """
        sock, number = self._awaited.pop(fd)
        self._poll.unregister(fd)
        with sock, contextlib.suppress(OSError):
            _, listeners, _, _ = socket.recv_fds(sock, 1, 1)
            if listeners and self._machine is not None:
                listener = listeners[0]
                os.set_inheritable(listener, False)
                sessions = self._sessions.get(number, notify.Sessions())

                def on_device_use(pid: int) -> None:
                    self._tell(messages.UsesDevice(id=number, pid=pid))

                gate = notify.Gate(listener, self._machine, self._plan, sessions, on_device_use)
                self._gates[listener] = _GuestGate(gate, number)
                self._poll.register(listener, select.POLLIN)

    def _forget(self, fd: int) -> None:
        self._poll.unregister(fd)
        self._gates.pop(fd).gate.close()

    def _gates_of(self, number: int) -> list[notify.Gate]:
        return [guest.gate for guest in self._gates.values() if guest.number == number]

    def obey(self, message: AllowFork | Protect | BeginSession | KeepOnly) -> None:
        """Carry out a message of the host about one guest and its snapshots."""
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
        """Allow ``pid`` one more fork: guest ``number`` or one of its snapshots.

        If ``pid`` is None, whichever of them forks first uses the permission.
        """
        for gate in self._gates_of(number):
            gate.allow_fork(pid)

    def protect(self, number: int, pid: int) -> None:
        """Refuse signals from the cells of guest ``number`` to its snapshot ``pid``."""
        for gate in self._gates_of(number):
            gate.protect(pid)

    def begin_session(self, request: BeginSession) -> None:
        """Let a snapshot begin a session (setsid(2)): the session of a fork of a sandbox."""
        if (sessions := self._sessions.get(request.id)) is not None:
            sessions.begin(request.pid, request.user)
        for gate in self._gates_of(request.id):
            gate.allow_session(request.pid)

    def keep_only(self, request: KeepOnly) -> None:
        """Allow a guest no further fork, and kill all else in a user's sessions.

        ``request`` lists the processes that may go on.
        """
        for gate in self._gates_of(request.id):
            gate.withdraw_fork(request.others)
        # The other forks may be making copies just now. These copies must go on, too.
        started = (pid for fork_pid in request.others for pid in notify.descendants(fork_pid))
        keep = (*request.pids, *request.others, *started)
        if (sessions := self._sessions.get(request.id)) is not None:
            with contextlib.suppress(LockFailed):
                notify.end_sessions(sessions, keep, request.user)

    def narrow(
        self,
        request: Narrow,
        done: Callable[[], None],
        session_namespaces: session_mounts.SessionNamespaces | None = None,
    ) -> None:
        """Put guest ``request.id`` under a narrower plan.

        From now on its gate decides by that plan, and the plan's Landlock ruleset waits for the
        copy ``request.pid`` to ask for it. ``done`` is called when the ruleset is on the copy.
        ``session_namespaces`` are those of the guest's session, if the session has its own.

        Raises OSError, ValueError, LockFailed if the locks can't be made; the gate then decides as
        before.
        """
        (gate,), plan = self._gates_of(request.id), request.plan
        # The zygote's network never changes, so a guest can't give it up for a private one.
        plan = msgspec.structs.replace(
            plan,
            loopback=plan.loopback and self._plan.loopback,
            local_sockets=plan.local_sockets and self._plan.local_sockets,
            attributes=plan.may_set_attributes(
                self._plan, "" if session_namespaces is None else session_namespaces.scratch
            ),
        )
        # Lowers nothing, but raises before anything is decided if the copy's limits are out of
        # reach. The gate lowers them when the copy asks for its ruleset.
        process.lower_limits(request.pid, Limits())
        namespaces = () if session_namespaces is None else session_namespaces.namespaces
        fd = landlock.ruleset(plan, request.rulesets, namespaces)
        alone = not request.fork
        if alone:  # a fork keeps the plan of its parent's gate, which it shares
            gate.plan = plan
        gate.expect_ruleset(notify.DueRuleset(request.pid, fd, plan.limits, done, alone=alone))

    def forked(self, number: int, pid: int) -> None:
        """Record that guest ``number`` was forked as ``pid``, which begins a session."""
        self._forget_session(pid)

        def on_sessions(users: dict[int, int]) -> None:
            # A session has the pid of the process that began it. A pid that is taken anew belongs
            # to this guest alone, so no older session of that number can have a process left.
            for other_number, sessions in self._sessions.items():
                if other_number != number:
                    for session in users:
                        sessions.forget(session)
            self._tell(messages.Sessions(id=number, sessions=users))

        self._sessions[number] = notify.Sessions(pid, on_sessions, number)

    def _forget_session(self, pid: int) -> None:
        """Forget any earlier session ``pid``: the number is free, so it is empty (setsid(2))."""
        for sessions in self._sessions.values():
            sessions.forget(pid)

    def end_forks(self, request: int, forks: tuple[int, ...]) -> None:
        """Begin to end everything in the sessions of these forks.

        ``ended`` then kills what is in them, and returns the id ``request`` when nothing is left.
        """
        for number in forks:
            for gate in self._gates_of(number):
                gate.withdraw_fork()
        of_forks = (self._sessions.pop(number, None) for number in forks)
        self._ending[request] = tuple(sessions for sessions in of_forks if sessions is not None)

    def ended(self) -> tuple[int, ...]:
        """Kill every process in a session that must end.

        Return the ids of the ``EndForks`` messages whose sessions were found empty. Called each
        time a child has ended: a process that was killed now is gone at a later call.
        """
        if not self._ending:
            return ()
        zygote_session = os.getsid(0)
        unfinished = set[int]()
        # All processes, not only those that a walk of our descendants finds: a walk misses some
        # while others fork.
        for pid, session in notify.everybody():
            # A fork that has yet to begin its session is still in the zygote's.
            number = pid if session == zygote_session else session
            for request, ending in self._ending.items():
                is_in = any(number in sessions for sessions in ending)
                if is_in and notify.descends(pid, os.getpid()):
                    unfinished.add(request)
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
        done = tuple(request for request in self._ending if request not in unfinished)
        for request in done:
            del self._ending[request]
        return done

    def close(self) -> None:
        """Close all sockets and listeners. Called in a fork, which must hold no listener."""
        for sock, _ in self._awaited.values():
            sock.close()
        for guest in self._gates.values():
            guest.gate.close()


#: Number of descriptors that the host sends for a guest: channel, stdout, stderr.
_TARGETS = 3
#: Pid of the first process in a pid namespace; when it ends, all others in there are killed.
_FIRST = 1
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Most characters of a failure that the host is told.
_LONGEST = 500


def main(control_fd: int, reaper: int, mounter_fd: int) -> NoReturn:
    """Prepare, then serve the control socket until the host is gone.

    ``reaper`` is a pipe to our parent, which removes the guests' folder in the end. If it is
    negative there is no such parent, and the zygote removes the folder. ``mounter_fd`` is a socket
    to the mounter.
    """
    # Guests inherit this: an interrupt must not end one that has no handler for it yet.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = _Control(socket.socket(fileno=control_fd))
    process.set_name("zygote")
    os.environ.clear()  # the wrapper may have set variables; the host sends those that count
    os.environ["HOME"] = os.devnull  # until there is one: else libraries ask the user database
    gc.disable()  # importing makes no garbage, and looking for it costs a tenth of the time
    try:
        # The zygote holds the environment that the policy passes on, and guests inherit its memory
        # (promise P2), so no other process may trace it.
        process.isolate_zygote(namespace=os.getpid() == _FIRST)
        installed.note_compiled()
        # Imported here, so that it happens while the host still reads its policy: all guests need
        # IPython, whatever the policy says.
        from cellblock.guest import setup  # noqa: PLC0415 - as said

        request, above = control.receive_prepare()
        witness.check_mounts(request.plan.mounted, request.mounts)
        request, mounter, sessions = _lay(request, socket.socket(fileno=mounter_fd), control)
        # Opened before the locks, which may let the zygote read only a part of a layer.
        opened_folders = {each.root: os.open(each.root, _FOLDER) for each in request.plan.layers}
        if "container" in request.plan.locks:
            opened_folders[request.scratch] = os.open(request.scratch, _FOLDER)
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
    for path, opened in opened_folders.items():
        control.send(messages.SeenFolder(path=path), opened)
    if messages.SHARED_MEMORY in request.plan.write_roots and sessions is None:
        control.send(messages.SharedMemory(), os.open(messages.SHARED_MEMORY, _FOLDER))
    control.send(messages.Obeyed())
    _Zygote(control, prepared, folder, above, mounter, sessions).serve()


def _lay(
    request: messages.Prepare, line: socket.socket, control: _Control
) -> tuple[messages.Prepare, layer.Mounter, session_mounts.SessionMounter | None]:
    """Mount layers for all guests, or start the mounter that makes mounts for each session.

    Also make the guests' own network, if the plan asks for one, and open its sockets for listed
    hosts. Return the request, whose plan now says whether mounts bound the attributes of files,
    and the connections to the mounter: for layers, and for sessions if they have their own mounts.

    Raises ConfineError.
    """
    layers = request.plan.layers
    sessions = None
    # Programs set modes and times. Cells may do without; so what can't be sealed is left as it is.
    seals = "namespaces" in request.plan.locks and request.plan.subprocess and not layers
    seals = seals and layer.can_seal((*request.plan.write_roots, request.scratch))
    if request.plan.own_mounts:
        request = _with_attributes(request, sealed=seals)
        sessions = session_mounts.SessionMounter(
            line.dup(), request.plan, request.scratch, control.send
        )
    mounter = layer.Mounter(line, layers)
    _enter_namespaces(request, seals=seals and sessions is None)
    for number, listener in own_network.listen(request.plan.neighbours):
        control.send(messages.Listening(number=number), listener)
    if request.plan.serves:
        control.send(messages.OwnNetwork(), own_network.diagnosing_socket())
    if not layers:
        mounter.close()
        if seals and sessions is None:
            request = _sealed(request)
        return request, mounter, sessions
    empty = layer.lay(layers, request.plan.shared_memory)
    request = _sealed(request)
    mounter.begin(layers, empty)
    mounter.cover(layers)
    return request, mounter, None


def _enter_namespaces(request: messages.Prepare, *, seals: bool) -> None:
    """Enter the namespaces that layers, the guests' own network and sealing need, if any.

    Raises ConfineError.
    """
    plan = request.plan
    wrapped = "namespaces" in plan.locks
    # What wraps the zygote (bubblewrap) has made a network already. The zygote needs another one
    # only to change it: for neighbours' addresses, or for the host to connect to servers.
    makes_network = plan.loopback and (not wrapped or bool(plan.neighbours) or plan.serves)
    if "container" in plan.locks or not (plan.layers or makes_network or seals):
        return
    try:
        layer.enter_namespaces()
        if makes_network:
            own_network.enter()
        if plan.neighbours:
            own_network.settle(plan.neighbours, request.scratch)
    except (OSError, LockFailed) as error:
        number = error.errno or 0
        raise ConfineError("network", number, "" if number else str(error)) from error


def _sealed(request: messages.Prepare) -> messages.Prepare:
    """Mount everything that cells don't write read-only, if that is possible.

    Return the request with the plan's ``attributes`` set accordingly. Raises ConfineError.
    """
    plan = request.plan
    writable = (*plan.write_roots, *(each.root for each in plan.layers), request.scratch)
    sealed = layer.seal(writable, apart="namespaces" in plan.locks)
    # A session that narrowed its policy has layers still for roots that it no longer writes.
    return _with_attributes(request, sealed=sealed and plan.lets_write(writable))


def _with_attributes(request: messages.Prepare, *, sealed: bool) -> messages.Prepare:
    """Return the request with whether cells may set modes, owners and times."""
    plan = msgspec.structs.replace(request.plan, attributes=sealed)
    return msgspec.structs.replace(request, plan=plan)


def _confine(request: messages.Prepare) -> None:
    """Take the locks of the zygote's guests, before it imports anything that the policy names.

    Beside what guests may do, the zygote may read what it preloads, read /proc to decide about
    guests' calls, and make a home for itself in the scratch folder, whether guests may write there
    or not. Raises ConfineError.
    """
    plan = request.plan
    plan = msgspec.structs.replace(
        plan,
        read_roots=(*plan.read_roots, *request.preloaded, "/proc"),
        write_roots=(*plan.write_roots, os.path.realpath(request.scratch)),
    )
    confine_zygote(plan, around=not {"namespaces", "container"}.isdisjoint(plan.locks))


class _Control:
    """The socket to the host. It carries frames, and descriptors along with some of them."""

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
        """Return the next message and its descriptors.

        Frames have no bound here, because only the host, which is trusted, writes to this socket.
        Raises EOFError, OSError when the host is gone.
        """
        header, fds = self._receive_exactly(frames.HEADER)
        body, _ = self._receive_exactly(int.from_bytes(header, "big"))
        return msgspec.msgpack.decode(body, type=messages.ToZygote), fds

    def _receive_exactly(self, size: int) -> tuple[bytes, list[int]]:
        data = b""
        fds = array.array("i")
        while len(data) < size:
            space = socket.CMSG_SPACE(_TARGETS * fds.itemsize)
            chunk, ancillary, _, _ = self._sock.recvmsg(size - len(data), space)
            for level, kind, payload in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
            if not chunk:
                raise EOFError
            data += chunk
        return data, list(fds)

    def send(self, message: msgspec.Struct, fd: int | None = None) -> None:
        """Send a message, with a descriptor, which is then closed.

        Does not raise if the host is gone: the poll loop sees the end of the socket.
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
    """The poll loop of a zygote that is ready: it obeys the host and answers guests' gates.

    ``folder`` is the guests' folder if the zygote must remove it, and empty if the reaper does.
    ``above`` are descriptors of the folders that contain it, which the zygote can't see by name.
    ``mounter`` changes layers, if there are any. ``sessions`` makes mounts for each session, if
    sessions have their own.
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
        self._control = control
        self._prepared = prepared
        self._folder = folder
        self._above = above
        self._mounter = mounter
        self._sessions = sessions
        # SIGCHLD writes here, so that the poll sees the end of a child.
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._poll.register(self._wake_read, select.POLLIN)
        self._control_poll = select.poll()
        self._control_poll.register(control, select.POLLIN)
        plan = prepared.request.plan
        self._gates = Gatekeeper(self._poll, plan, self._obey_all, control.send)

    def serve(self) -> NoReturn:
        """Serve until the host is gone or sends ``Quit``; then end the process."""
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
        """Carry out every message that the host has sent until now."""
        while self._control_poll.poll(0):
            self._obey()

    def _obey(self) -> None:
        """Carry out one message of the host and answer ``Obeyed``; end if the host is gone."""
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
                pass  # ``Obeyed`` is the answer
            case messages.Quit():
                end_children()
                os._exit(1)  # not 0: the reaper would remove their folder

    def _end_forks(self, message: messages.EndForks) -> None:
        self._gates.end_forks(message.id, message.forks)
        if self._sessions is not None:
            self._sessions.end_forks(message.forks)
        self._report_ended()

    def _narrow(self, message: Narrow) -> None:
        """Prepare a narrower plan; report now that it is ready, and later that it is in force."""
        ticket = message.ticket
        in_force = messages.Narrowed(ticket=ticket)
        answer = messages.Narrowed(ticket=ticket, ready=True)
        try:
            namespaces = None if self._sessions is None else self._sessions.of_fork(message.id)
            if not message.fork:
                self._mounter.cover(message.plan.layers)
            self._gates.narrow(message, lambda: self._control.send(in_force), namespaces)
        except Exception as error:  # whatever failed concerns this guest only: serve the others
            failure = str(error)[:_LONGEST] or type(error).__name__
            answer = messages.Narrowed(ticket=ticket, failure=failure)
        self._control.send(answer)

    def _refresh(self) -> str:
        """Make layers forget the names that they looked up; return why that failed, or ""."""
        try:
            self._mounter.refresh()
        except OSError as error:
            return error.strerror or str(error)[:_LONGEST]
        return ""

    def _fork(self, request: messages.Fork, fds: list[int]) -> None:
        """Fork a guest, which gets the descriptors ``fds``, and report its pid to the host.

        ``fds`` are closed in the zygote. The guest never returns from here.
        """
        namespaces, failure = self._mounts_of(request)
        listener_socket = self._gates.expect(request.id)
        if listener_socket is not None:
            fds = [*fds, listener_socket.detach()]
        try:
            pid = os.fork()
        except OSError as error:  # the other guests of a pool go on
            detail = f"no process could be made for it: {error.strerror}"
            self._control.send(messages.ForkFailed(id=request.id, detail=detail))
            pid = -1
        if pid:
            for fd in fds:
                os.close(fd)
            if pid > 0:
                self._gates.forked(request.id, pid)
                # The host signals the guest by pidfd: a pid may belong to another process when the
                # host acts. Opening it can't fail even if the guest has ended, because only the
                # zygote reaps it (pidfd_open(2)).
                self._control.send(messages.Forked(id=request.id, pid=pid), os.pidfd_open(pid))
            return
        status = 1
        try:
            if namespaces is not None:
                failure = namespaces.enter()
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
        """Return the namespaces that a fork must enter, if any, or why they can't be made."""
        if self._sessions is None or not request.mounts:
            return None, None
        try:
            return self._sessions.enter_fork(request.id, request.mounts), None
        except OSError as error:
            return None, ConfineError("namespaces", error.errno or 0, "a session's mounts")

    def _become_guest(
        self, request: messages.Fork, fds: list[int], failure: ConfineError | None
    ) -> None:
        """Close everything that belongs to the zygote, and serve as a guest.

        ``failure`` is why the guest can't have its mounts; it then only reports that.
        """
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        for fd in (self._wake_read, self._wake_write, self._control.fileno(), *self._above):
            os.close(fd)
        self._gates.close()
        self._mounter.close()
        self._prepared.become_guest(fds, request, failure)

    def _reap(self) -> None:
        """Reap all children that have ended, orphans of guests included, and report each."""
        with contextlib.suppress(ChildProcessError):
            while child := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                session = os.getsid(child.si_pid)  # unknown once the child is reaped
                pid, status, usage = os.wait4(child.si_pid, 0)
                seconds = usage.ru_utime + usage.ru_stime
                self._control.send(
                    messages.Reaped(pid=pid, status=status, session=session, seconds=seconds)
                )

    def _report_ended(self) -> None:
        """Answer the ``EndForks`` messages whose forks have left no process."""
        for number in self._gates.ended():
            self._control.send(messages.ForksEnded(id=number))

    def _end(self) -> NoReturn:
        """Kill all descendants, shut the control socket down, remove the guests' folder, exit.

        In this order: a host that is alive waits for the socket's end, and must not have to wait
        until files are removed.
        """
        end_children()
        self._control.shut_down()  # closing is not enough, because the reaper holds the socket, too
        if self._folder:
            remove_tree(self._folder)
        private, name = os.path.split(self._folder)
        for parent, entry in zip(self._above, (name, os.path.basename(private)), strict=False):
            with contextlib.suppress(OSError):
                os.rmdir(entry, dir_fd=parent)
        os._exit(0)
