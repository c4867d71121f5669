"""The process between a host and a container: what the host starts, waits for and kills.

A container is no child of the host's, and inherits nothing. So the engine is told to start one with
a socket mounted into it. The OS kernel says who connects there, and the container's first process
gets what a child would have inherited. From then on host and zygote are alone: the launcher only
stands for the container, since it goes when that does, and the container is ended when it goes.

When a container's first process ends, the OS kernel ends all others in it, and the engine forgets
it. A process that nobody waits for sees to its end (``_attend``).
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

#: Where the socket is mounted in the container, and its name outside.
SOCKET: Final = "/.cellblock"
_NAME: Final = "wire"
#: Seconds that an engine has to start a container; it takes half of one.
PATIENCE: Final = 60.0
_STDERR: Final = 2
#: Bytes that are kept of what the engine says.
_MAX_SAID_BYTES: Final = 4096
#: struct ucred: pid, uid, gid.
_UCRED: Final = struct.Struct("=iII")
_NSPID: Final = re.compile(r"^NSpid:\t(.*)$", re.MULTILINE)


def main(spec_fd: int, control_fd: int, argv: list[str]) -> NoReturn:
    """Start ``argv`` in a container, and stay until it has ended.

    ``spec_fd`` has the container's specification; ``control_fd`` is the zygote's end of its socket.
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
    """Start the container, hand over what its first process needs, return a pidfd of that.

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
    ours = str(Path(__file__).parents[2])
    program = (
        "import sys; sys.path.append(sys.argv[1]);"
        "from cellblock.guest.container_entry import enter;"
        "enter(sys.argv[2], int(sys.argv[3]), sys.argv[4:])"
    )
    options = ["-I", "-S", "-X", "utf8", "-c", program]
    return [argv[0], *options, ours, SOCKET, str(control_fd), *argv]


@contextlib.contextmanager
def _running(engine: Engine, command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run the engine's command line, and kill it at the end: the container goes on without it."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=dict(engine.environment),
    ) as ran:
        try:
            yield ran
        finally:
            ran.kill()


def _accept(
    listener: socket.socket, engine: subprocess.Popen[bytes], control: socket.socket
) -> socket.socket:
    """Return the connection that the container makes. Raises EngineError where none comes."""
    stderr: Any = engine.stderr  # a pipe
    errors = stderr.fileno()
    said = b""
    deadline = time.monotonic() + PATIENCE
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(errors, select.POLLIN)
    poll.register(control, select.POLLRDHUP)
    while (left := deadline - time.monotonic()) > 0:
        ready = dict(poll.poll(left * 1000))
        if listener.fileno() in ready:
            return listener.accept()[0]
        if control.fileno() in ready:
            raise EngineError("nobody waits for it any more")
        if errors in ready:
            part = os.read(errors, _MAX_SAID_BYTES)
            said = (said + part)[-_MAX_SAID_BYTES:]
            if not part:
                raise EngineError(explain(said.decode(errors="replace")))
    raise EngineError(f"the engine has started no container within {PATIENCE:g} s")


def first_process(connection: socket.socket) -> int:
    """Return a pidfd of what connected: the first process of a pid namespace below ours, and ours.

    Raises EngineError for anything else, OSError for what is gone.
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
    found = _NSPID.search(status)
    numbers = found[1].split() if found else []
    if numbers[1:][-1:] != ["1"]:  # the first is the one here, the last the one inside
        os.close(pidfd)
        raise EngineError("the engine has started a process, and no container around it")
    return pidfd


def _tell_host(control: socket.socket, why: str) -> None:
    """Tell the host why there is no zygote, in the zygote's place."""
    with contextlib.suppress(OSError):
        control.sendall(frames.encode(messages.ZygoteFailed(detail=f"container: {why}")))


# --- the end ----------------------------------------------------------------------------------


def _start_attendant(
    engine: Engine, name: str, folder: str, control: socket.socket
) -> socket.socket:
    """Fork the process that ends the container; it does when the returned socket is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    group = os.getpgrp() if os.getpgrp() == os.getpid() else 0
    if os.fork() == 0:
        ours.close()
        control.close()
        os.setsid()
        _attend(theirs, engine, name, folder, group)
    theirs.close()
    return ours


def _attend(
    launcher: socket.socket, engine: Engine, name: str, folder: str, launchers: int
) -> NoReturn:
    """Wait until the launcher is gone; then end the container and remove ``folder``.

    A pidfd that comes by the socket stands for the container's first process, which is killed
    without the engine. The command line that still asks the engine for the container is killed as
    well: it is of the launcher's process group, ``launchers``, unless that is 0.
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
        if launchers:
            os.killpg(launchers, signal.SIGKILL)
    for pidfd in pidfds:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    engine.remove([name])
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)
