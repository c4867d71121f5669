"""The zygote: imports and prepares once, then forks a guest whenever the host asks.

It runs no user code. It dies with the host: the end of its control socket is the host's end,
and whatever descends from it is killed before it goes. Should it not come to that, its ``reaper``
does it.
"""

from __future__ import annotations

import array
import contextlib
import gc
import os
import select
import signal
import socket
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import msgspec

from cellblock.guest import remove_tree
from cellblock.guest.confine import ConfineError, confine_zygote, process, witness
from cellblock.guest.confine.libc import LockFailed
from cellblock.guest.confine.process import isolate_zygote
from cellblock.guest.gatekeeper import Gatekeeper
from cellblock.guest.reaper import end_children
from cellblock.wire import frames, messages

if TYPE_CHECKING:
    from cellblock.guest.setup import Prepared


#: Channel, stdout, stderr, and the way to the relay where there is one.
_MOST_DESCRIPTORS = 4
#: What the first process in a pid namespace is called there; all others end with it.
_FIRST = 1
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_CONTROL = 8 * 2**20
#: Characters of why locks could not be laid.
_LONGEST = 500


class _Left(NamedTuple):
    """What the zygote removes in the end: the guests' folder, where no reaper does.

    ``above`` has a descriptor of what that lies in, where it is out of our sight.
    """

    folder: str
    above: list[int]


def main(control_fd: int, reaper: int) -> NoReturn:
    """Serve the control socket until the host is gone.

    ``reaper`` is told of the guests' folder, which is ours to remove where it is negative.
    """
    # Until a guest can act on it, an interrupt must not end it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=control_fd)
    process.set_name("zygote")
    os.environ.clear()  # what wraps us may have put something there; the host tells what is to be
    os.environ["HOME"] = os.devnull  # until there is one: else libraries ask the user database
    gc.disable()  # nothing made while importing is garbage: looking for it costs a tenth of it
    try:
        # It holds what the policy passes on, and guests are made of it (promise P2).
        isolate_zygote(namespace=os.getpid() == _FIRST)
        _import_early()
        prepare, above = _receive(control)
        if not isinstance(prepare, messages.Prepare):
            raise TypeError("the first frame must be Prepare")  # noqa: TRY301
        witness.check_mounts(prepare.plan.mounted, prepare.mounts)
        from cellblock.guest import setup  # noqa: PLC0415 - slow: overlaps the host's imports

        folder = _handed_on(prepare.scratch, reaper)
        _confine_itself(prepare)
        ready = setup.prepare(prepare)
        gc.freeze()
    except EOFError:
        os._exit(0)
    except ConfineError as exc:
        _tell(control, messages.ZygoteFailed(detail=str(exc)))
        os._exit(1)
    except BaseException as exc:
        _tell(control, messages.ZygoteFailed(detail=f"{type(exc).__name__}: {exc}"))
        os._exit(1)
    gc.enable()
    if "container" in prepare.plan.locks:
        _tell_place(control, prepare.scratch)
    _serve(control, ready, _Left(folder, above))


def _handed_on(folder: str, reaper: int) -> str:
    """Leave it to the reaper to remove a folder; return what is ours to remove, or nothing."""
    if reaper < 0:
        return folder
    os.write(reaper, os.fsencode(folder))
    os.close(reaper)
    return ""


def _confine_itself(prepare: messages.Prepare) -> None:
    """Take the locks of guests before anything is imported that a policy names.

    Beyond theirs, it reads what it preloads, and of processes what it decides by; and it makes a
    folder for itself in the scratch folder, whether guests may write there or not.
    """
    plan = prepare.plan
    plan = msgspec.structs.replace(
        plan,
        read_roots=(*plan.read_roots, *prepare.preloaded, "/proc"),
        write_roots=(*plan.write_roots, os.path.realpath(prepare.scratch)),
    )
    confine_zygote(plan, around=not {"namespaces", "container"}.isdisjoint(plan.locks))


def _import_early() -> None:
    """Import what every guest needs while the host still reads its policy."""
    # The shell names these as text, and would import them when the host waits for it.
    from IPython.core import (  # noqa: F401, PLC0415
        application,
        completerlib,
        interactiveshell,
        magics,
        oinspect,
    )

    from cellblock.guest import setup  # noqa: F401, PLC0415


def _serve(control: socket.socket, ready: Prepared, left: _Left) -> NoReturn:
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(wake_read, select.POLLIN)
    own = (wake_read, wake_write, control.fileno(), *left.above)

    def hear() -> None:
        """Do what the host has asked for until now."""
        while any(fd == control.fileno() for fd, _ in hearing.poll(0)):
            _obey(control, ready, gates, own, left)

    hearing = select.poll()
    hearing.register(control, select.POLLIN)
    gates = Gatekeeper(poll, ready.request.plan, hear)
    while True:
        for fd, events in poll.poll():
            if fd == wake_read:
                os.read(wake_read, 1024)
                _reap(control)
                _tell_left(control, gates)
            elif gates.concerns(fd):
                gates.act(fd, events)
            elif fd == control.fileno():
                hear()


def _obey(
    control: socket.socket,
    ready: Prepared,
    gates: Gatekeeper,
    own: tuple[int, ...],
    left: _Left,
) -> None:
    """Do one thing that the host asks for; its end is ours."""
    try:
        message, fds = _receive(control)
    except (EOFError, OSError):
        _end(control, left)
    match message:
        case messages.Fork() if len(fds) == len(ready.targets):
            pid = _fork(message, fds, ready, gates, own)
            gates.forked(message.id, pid)
            _tell_forked(control, messages.Forked(id=message.id, pid=pid))
        case messages.Allow(id=number, pid=pid):
            gates.allow(number, pid)
        case messages.Members(id=number, session=session, pids=pids):
            gates.claim(number, session, pids)
        case messages.Leave(id=number, forks=forks):
            gates.leave_alone(number, forks)
            _tell_left(control, gates)
        case messages.Confine():
            _confine(control, message, gates)
        case messages.Quit():
            end_children()
            os._exit(1)  # not 0: the reaper would remove their folder


def _confine(control: socket.socket, request: messages.Confine, gates: Gatekeeper) -> None:
    ticket = request.ticket
    said = messages.Confined(ticket=ticket, ready=True)
    try:
        gates.confine(request, lambda: _tell(control, messages.Confined(ticket=ticket)))
    except (OSError, ValueError, LockFailed) as error:
        said = messages.Confined(ticket=ticket, failure=str(error)[:_LONGEST])
    _tell(control, said)


def _fork(
    request: messages.Fork,
    fds: list[int],
    ready: Prepared,
    gates: Gatekeeper,
    own: tuple[int, ...],
) -> int:
    listening = gates.expect(request.id)
    if listening is not None:
        fds = [*fds, listening.detach()]
    pid = os.fork()
    if pid:
        for fd in fds:
            os.close(fd)
        return pid
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        for fd in own:
            os.close(fd)
        gates.leave()
        ready.become_guest(fds, request)
        status = 0
    except SystemExit:
        status = 0
    except BaseException as exc:
        os.write(2, f"cellblock guest: {type(exc).__name__}: {exc}\n".encode())
    finally:
        os._exit(status)


def _reap(control: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _tell(control, messages.Reaped(pid=pid, status=status))


def _tell_left(control: socket.socket, gates: Gatekeeper) -> None:
    """Say of which guests nothing is left."""
    for number in gates.ended():
        _tell(control, messages.Left(id=number))


def _end(control: socket.socket, left: _Left) -> NoReturn:
    """Kill everything that descends from here, hang up, have the guests' folder removed, go.

    A host that lives waits for the hanging up; nobody has to wait for what a guest left to remove.
    """
    end_children()
    control.shutdown(socket.SHUT_RDWR)  # the reaper has it, too
    if left.folder:
        remove_tree.remove(left.folder)
    for folder in left.above:
        with contextlib.suppress(OSError):
            os.rmdir(os.path.basename(left.folder), dir_fd=folder)
    os._exit(0)


def _receive(control: socket.socket) -> tuple[Any, list[int]]:
    header, fds = _recv_exactly(control, frames.HEADER)
    size = int.from_bytes(header, "big")
    if size > _MAX_CONTROL:
        raise EOFError
    body, _ = _recv_exactly(control, size)
    return msgspec.msgpack.decode(body, type=messages.ToZygote), fds


def _recv_exactly(control: socket.socket, size: int) -> tuple[bytes, list[int]]:
    data, fds = b"", array.array("i")
    while len(data) < size:
        space = socket.CMSG_SPACE(_MOST_DESCRIPTORS * fds.itemsize)
        part, ancillary, _, _ = control.recvmsg(size - len(data), space)
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
        if not part:
            raise EOFError
        data += part
    return data, list(fds)


def _tell_place(control: socket.socket, scratch: str) -> None:
    """Send the folder that guests have to themselves: the host sees it by no name."""
    folder = os.open(scratch, _FOLDER)
    try:
        with contextlib.suppress(OSError):
            socket.send_fds(control, [bytes(frames.encode(messages.Placed()))], [folder])
    finally:
        os.close(folder)


def _tell_forked(control: socket.socket, message: messages.Forked) -> None:
    """Send ``message`` and the new guest's pidfd: its pid may be another's when the host acts.

    Valid whatever has become of the guest, since nobody but us reaps it (pidfd_open(2)).
    """
    pidfd = os.pidfd_open(message.pid)
    try:
        with contextlib.suppress(OSError):
            socket.send_fds(control, [bytes(frames.encode(message))], [pidfd])
    finally:
        os.close(pidfd)


def _tell(control: socket.socket, message: msgspec.Struct) -> None:
    """Send ``message``; a host that is gone is seen by the poll, as the end of its socket."""
    with contextlib.suppress(OSError):
        _send(control, message)


def _send(control: socket.socket, message: msgspec.Struct) -> None:
    control.sendall(frames.encode(message))
