"""The process between a host and a container: what the host starts, waits for and kills.

A container is no child of ours, and inherits nothing. So the engine is told to start one with a
socket mounted into it, whoever connects there is asked of the OS kernel, and gets what a child
would have inherited. From then on host and zygote are alone: this process only stands for the
container, since it goes when that does, and the container is ended when it goes.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from cellblock.backends import aside
from cellblock.backends.container_engine import (
    OWNER,
    Refused,
    Wanted,
    meaning,
    owner,
    started,
    wanted,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cellblock.backends.container_engine import Engine


# Ends of containers: of ours, whatever becomes of who started it, and of those left by others.
#
# The OS kernel ends what is in a container with its first process; what is left then is the
# engine's own record of it. Both are seen to by a process that does nothing else, and that
# nobody waits for.

#: Containers of others that are looked through at one start.
_MOST = 200
#: Seconds that an engine may take to forget; it goes on by itself when nobody waits any more.
_PATIENCE = 5.0


def attend(way: socket.socket, engine: Engine, name: str, folder: str, asking: int) -> NoReturn:
    """Wait until the other end of ``way`` is closed; then end the container and remove ``folder``.

    A pidfd that comes by ``way`` stands for its first process, which is killed without the engine.
    So is what still asks the engine for it: that is of the process group ``asking``, unless 0.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pidfds: list[int] = []
    with contextlib.suppress(OSError):
        while True:
            data, fds, *_ = socket.recv_fds(way, 1, 1)
            pidfds += fds
            if not data:
                break
    with contextlib.suppress(OSError):
        if asking:
            os.killpg(asking, signal.SIGKILL)
    for pidfd in pidfds:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    remove(engine, [name])
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def remove(engine: Engine, names: Iterable[str]) -> None:
    """Have the engine forget containers, bounded in time; those that it doesn't know are gone."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        engine.ask("rm", "--force", *names, seconds=_PATIENCE)


def sweep(engine: Engine) -> list[str]:
    """Remove the containers of this user's hosts that are gone; return what they were called."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        found = engine.ask("ps", "--all", "--quiet", "--filter", f"label={OWNER}")
        left = _labelled(engine, found.stdout.decode("ascii", "replace").split())
        if orphans := [name for name, whose in left if is_orphan(whose)]:
            remove(engine, orphans)
            return orphans
    return []


def _labelled(engine: Engine, ids: list[str]) -> list[tuple[str, str]]:
    if not ids:
        return []
    form = f'{{{{.Id}}}} {{{{index .Config.Labels "{OWNER}"}}}}'
    asked = engine.ask("inspect", "--format", form, *ids[:_MOST])
    lines = asked.stdout.decode("ascii", "replace").splitlines()
    pairs = (line.partition(" ") for line in lines)
    return [(name, whose.strip()) for name, _, whose in pairs]


def is_orphan(label: str) -> bool:
    """Say whether who is named there is gone for certain.

    Of a process in another pid namespace nothing is known here, and those of other users may be
    hidden (proc(5), hidepid): both are left alone. Before the machine's last start nobody is left.
    """
    ours, theirs = owner(os.getpid()).split(":"), label.split(":")
    if len(theirs) != len(ours) or theirs[2] != ours[2] or not theirs[3].isdecimal():
        return False
    if theirs[0] != ours[0]:
        return True
    return theirs[1] == ours[1] and str(started(int(theirs[3]))) != theirs[4]


#: Where the socket is, inside.
WAY: Final = "/.cellblock"
_NAME: Final = "wire"
#: Seconds that an engine has to start a container; it takes half of one.
PATIENCE: Final = 60.0
_STDERR: Final = 2
#: Of what the engine says, as much is kept.
_KEPT: Final = 4096
#: struct ucred: pid, uid, gid.
_UCRED: Final = struct.Struct("=iII")
_STATUS: Final = re.compile(r"^NSpid:\t(.*)$", re.MULTILINE)


def main(told_fd: int, control_fd: int, argv: list[str]) -> NoReturn:
    """Start ``argv`` in a container that is as is told, and stay until it has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    asked = wanted(aside.heard(told_fd)[0])
    name = f"cellblock-{secrets.token_hex(8)}"
    folder = tempfile.mkdtemp(prefix="cellblock-wire-", dir=asked.folder)
    control = socket.socket(fileno=control_fd)
    way = _have_attended(asked, name, folder, control)
    try:
        pidfd = _started(asked, name, folder, control, argv)
    except (Refused, OSError, subprocess.SubprocessError) as failure:
        _tell(control, str(failure))
        os._exit(1)
    with contextlib.suppress(OSError):
        socket.send_fds(way, [b"z"], [pidfd])
    control.close()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for what comes after us
    _sweep_beside(asked, way)
    select.select([pidfd], [], [])
    os._exit(0)


def _have_attended(asked: Wanted, name: str, folder: str, control: socket.socket) -> socket.socket:
    """Fork who sees to the container's end; return what is to be closed for that."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    group = os.getpgrp() if os.getpgrp() == os.getpid() else 0
    if os.fork() == 0:
        ours.close()
        control.close()
        os.setsid()
        attend(theirs, asked.engine, name, folder, group)
    theirs.close()
    return ours


def _sweep_beside(asked: Wanted, way: socket.socket) -> None:
    """Remove what earlier hosts left, in a process that holds nothing up."""
    if os.fork() == 0:
        way.close()
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with contextlib.suppress(Exception):
            sweep(asked.engine)
        os._exit(0)


def _started(
    asked: Wanted, name: str, folder: str, control: socket.socket, argv: Sequence[str]
) -> int:
    """Return a pidfd of the container's first process, which has got what it needs.

    Raises Refused, OSError, SubprocessError.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        os.chdir(folder)  # the whole path may be longer than an address (unix(7))
        listener.bind(_NAME)
        listener.listen(1)
        os.chdir("/")
        mount = f"type=bind,src={folder}/{_NAME},dst={WAY}"
        inside = _inside(control.fileno(), argv)
        command = asked.command(name, os.getppid(), inside, "--mount", mount)
        with _running(asked, command) as engine:
            connection = _awaited(listener, engine, control)
    with connection:
        pidfd = first_process(connection)
        socket.send_fds(connection, [b"c"], [control.fileno(), _STDERR])
    shutil.rmtree(folder, ignore_errors=True)
    return pidfd


def _inside(control_fd: int, argv: Sequence[str]) -> list[str]:
    """Return the command that fetches what ``argv`` needs, and becomes it."""
    ours = str(Path(__file__).parents[3])
    boot = (
        "import sys; sys.path.append(sys.argv[1]);"
        "from cellblock.guest.zygote import enter;"
        "enter(sys.argv[2], int(sys.argv[3]), sys.argv[4:])"
    )
    return [argv[0], "-I", "-S", "-X", "utf8", "-c", boot, ours, WAY, str(control_fd), *argv]


@contextlib.contextmanager
def _running(asked: Wanted, command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Have the engine's command line run, and killed: the container goes on without it."""
    with subprocess.Popen(  # noqa: S603 - the engine, as it is found
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=dict(asked.engine.environment),
    ) as engine:
        try:
            yield engine
        finally:
            engine.kill()


def _awaited(
    listener: socket.socket, engine: subprocess.Popen[bytes], control: socket.socket
) -> socket.socket:
    """Return the connection that the container makes. Raises Refused where none comes."""
    assert engine.stderr is not None  # noqa: S101 - made so
    errors, said, deadline = engine.stderr.fileno(), b"", time.monotonic() + PATIENCE
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(errors, select.POLLIN)
    poll.register(control, select.POLLRDHUP)
    while (left := deadline - time.monotonic()) > 0:
        ready = dict(poll.poll(left * 1000))
        if listener.fileno() in ready:
            return listener.accept()[0]
        if control.fileno() in ready:
            raise Refused("nobody waits for it any more")
        if errors in ready:
            part = os.read(errors, _KEPT)
            said = (said + part)[-_KEPT:]
            if not part:
                raise Refused(meaning(said.decode(errors="replace")))
    raise Refused(f"the engine has started no container within {PATIENCE:g} s")


def first_process(connection: socket.socket) -> int:
    """Return a pidfd of what connected: the first process of a pid namespace below ours, and ours.

    Raises Refused for anything else, OSError for what is gone.
    """
    room = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid, uid, _ = _UCRED.unpack(room)
    if pid <= 0:
        raise Refused("the container's processes can't be seen from here: its machine is another")
    if uid != os.geteuid():
        raise Refused(f"the engine has started the container as another user: {uid}")
    pidfd = os.pidfd_open(pid)
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    numbers = found[1].split() if (found := _STATUS.search(status)) else []
    if len(numbers) < 2 or numbers[-1] != "1":  # noqa: PLR2004 - here and there
        os.close(pidfd)
        raise Refused("the engine has started a process, and no container around it")
    return pidfd


def _tell(control: socket.socket, why: str) -> None:
    """Say to the host why there is no zygote, in the zygote's place."""
    from cellblock.wire import frames, messages  # noqa: PLC0415 - where it failed alone

    with contextlib.suppress(OSError):
        control.sendall(frames.encode(messages.ZygoteFailed(detail=f"container: {why}")))
