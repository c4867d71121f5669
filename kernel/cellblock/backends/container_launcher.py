"""The launcher: the process between a host and a container, which the host starts and kills.

A container is not a child of the host, and inherits nothing. So the launcher tells the engine to
start a container with a socket mounted into it. The OS kernel says which process connects there,
and the container's first process gets by this socket what a child would have inherited. From then
on host and zygote speak to each other directly. The launcher only stands for the container: it ends
when the container ends, and the container is ended when the launcher ends.

When a container's first process ends, the OS kernel ends all others in it, and the engine removes
the container. The attendant, a process that nobody waits for, makes sure of that (``_attend``)::

    host ──starts──▶ launcher ──forks──▶ attendant
                        │
                        └──asks──▶ engine ──starts──▶ container: zygote, guests
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
from typing import TYPE_CHECKING, Any, Final, NoReturn

from cellblock.backends.container_engine import (
    ContainerSpec,
    EngineError,
    explain,
)
from cellblock.descriptors import is_readable, read_args
from cellblock.wire import frames, messages

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cellblock.backends.container_engine import Engine

#: The path of the socket in the container, and its name outside.
SOCKET: Final = "/.cellblock"
_NAME: Final = "wire"
#: Seconds that an engine has to start a container. It takes about 0.5 s.
PATIENCE: Final = 60.0
_STDERR: Final = 2
#: Bytes kept of the engine's errors.
_MAX_SAID_BYTES: Final = 4096
#: struct ucred: pid, uid, gid.
_UCRED: Final = struct.Struct("=iII")
_NSPID: Final = re.compile(r"^NSpid:\t(.*)$", re.MULTILINE)


def main(spec_fd: int, control_fd: int, argv: list[str]) -> NoReturn:
    """Start ``argv`` in a container, and stay until the container has ended.

    ``spec_fd`` is a file with the container's specification, ``control_fd`` the zygote's end of its
    control socket.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    spec = ContainerSpec.from_json(read_args(spec_fd)[0])
    name = f"cellblock-{secrets.token_hex(8)}"
    folder = tempfile.mkdtemp(prefix="cellblock-wire-", dir=spec.folder)
    control = socket.socket(fileno=control_fd)
    attendant = _start_attendant(spec.engine, name, folder, control)
    try:
        pidfd = _start(spec, name, folder, control, argv)
    except (EngineError, OSError, subprocess.SubprocessError) as failure:
        _tell_host(control, str(failure))
        os._exit(1)
    with contextlib.suppress(OSError):
        socket.send_fds(attendant, [b"z"], [pidfd])
    control.close()
    is_readable(pidfd, None)
    os._exit(0)


# --- the start --------------------------------------------------------------------------------


def _start(
    spec: ContainerSpec, name: str, folder: str, control: socket.socket, argv: Sequence[str]
) -> int:
    """Start the container and send descriptors to its first process; return that one's pidfd.

    Raises EngineError, OSError, SubprocessError.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        os.chdir(folder)  # the whole path may be longer than an address (unix(7))
        listener.bind(_NAME)
        listener.listen(1)
        os.chdir("/")
        mount = f"type=bind,src={folder}/{_NAME},dst={SOCKET}"
        inside = _fetch_argv(control.fileno(), argv)
        command = spec.command(name, os.getppid(), inside, "--mount", mount)
        with _running(spec.engine, command) as engine:
            connection = _accept(listener, engine, control)
    with connection:
        pidfd = first_process(connection)
        socket.send_fds(connection, [b"c"], [control.fileno(), _STDERR])
    shutil.rmtree(folder, ignore_errors=True)
    return pidfd


def _fetch_argv(control_fd: int, argv: Sequence[str]) -> list[str]:
    """Return the command that fetches descriptors from the socket and then executes ``argv``."""
    package_path = str(Path(__file__).parents[2])
    program = (
        "import sys; sys.path.append(sys.argv[1]);"
        "from cellblock.guest.container_entry import enter;"
        "enter(sys.argv[2], int(sys.argv[3]), sys.argv[4:])"
    )
    options = ["-I", "-S", "-X", "utf8", "-c", program]
    return [argv[0], *options, package_path, SOCKET, str(control_fd), *argv]


@contextlib.contextmanager
def _running(engine: Engine, command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run the engine's command line, and kill it at the end. The container goes on without it."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=dict(engine.environment),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _accept(
    listener: socket.socket, engine: subprocess.Popen[bytes], control: socket.socket
) -> socket.socket:
    """Return the connection that the container makes. Raises EngineError if none comes."""
    stderr: Any = engine.stderr  # a pipe
    errors = stderr.fileno()
    complaint = b""
    deadline = time.monotonic() + PATIENCE
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(errors, select.POLLIN)
    poll.register(control, select.POLLRDHUP)
    while (seconds_left := deadline - time.monotonic()) > 0:
        ready = dict(poll.poll(seconds_left * 1000))
        if listener.fileno() in ready:
            return listener.accept()[0]
        if control.fileno() in ready:
            raise EngineError("nobody waits for it any more")
        if errors in ready:
            chunk = os.read(errors, _MAX_SAID_BYTES)
            complaint = (complaint + chunk)[-_MAX_SAID_BYTES:]
            if not chunk:
                raise EngineError(explain(complaint.decode(errors="replace")))
    raise EngineError(f"the engine has started no container within {PATIENCE:g} s")


def first_process(connection: socket.socket) -> int:
    """Return a pidfd of the process that connected, after checking it.

    It must be this user's, and the first process of a pid namespace below ours. Raises EngineError
    if it is not, OSError if it is gone.
    """
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid, uid, _ = _UCRED.unpack(credentials)
    if pid <= 0:
        raise EngineError(
            "the container's processes can't be seen from here: its machine is another"
        )
    if uid != os.geteuid():
        raise EngineError(f"the engine has started the container as another user: {uid}")
    pidfd = os.pidfd_open(pid)
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    match = _NSPID.search(status)
    numbers = match[1].split() if match else []
    if numbers[1:][-1:] != ["1"]:  # the first number is the pid here, the last the one inside
        os.close(pidfd)
        raise EngineError("the engine has started a process, and no container around it")
    return pidfd


def _tell_host(control: socket.socket, why: str) -> None:
    """Send the host the reason why there is no zygote, as the zygote would."""
    with contextlib.suppress(OSError):
        control.sendall(frames.encode(messages.ZygoteFailed(detail=f"container: {why}")))


# --- the end ----------------------------------------------------------------------------------


def _start_attendant(
    engine: Engine, name: str, folder: str, control: socket.socket
) -> socket.socket:
    """Fork the attendant, which ends the container when the returned socket is closed."""
    our_end, attendant_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    group = os.getpgrp() if os.getpgrp() == os.getpid() else 0
    if os.fork() == 0:
        our_end.close()
        control.close()
        os.setsid()
        _attend(attendant_end, engine, name, folder, group)
    attendant_end.close()
    return our_end


def _attend(
    launcher: socket.socket, engine: Engine, name: str, folder: str, group: int
) -> NoReturn:
    """Wait until the launcher is gone; then end the container and remove ``folder``.

    A pidfd that comes by the socket is that of the container's first process, which is killed
    without asking the engine. A command line that still asks the engine for the container is killed
    as well: it is in the launcher's process ``group``, if that is not 0.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pidfds: list[int] = []
    with contextlib.suppress(OSError):
        while True:
            data, fds, *_ = socket.recv_fds(launcher, 1, 1)
            pidfds += fds
            if not data:
                break
    with contextlib.suppress(OSError):
        if group:
            os.killpg(group, signal.SIGKILL)
    for pidfd in pidfds:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    engine.remove([name])
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)
