"""Starting a kernel: in the order that wastes no time.

The zygote is spawned before anything slow is imported; sockets are bound before the policy is
read, so that a front end's first messages wait in them; a policy that can't be kept does not
end the kernel but answers every cell, because a kernel that merely dies tells nobody why.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cellblock.errors import StartError
from cellblock.host import launch

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from cellblock.jupyter.groundwork import Wrapping
    from cellblock.jupyter.kernel import Kernel
    from cellblock.jupyter.reactor import ZmqReactor

USAGE = "usage: python -E -P -m cellblock -f CONNECTION_FILE [--policy NAME|FILE] [--allow-unsafe]"
#: Seconds between looks at whether whoever started the kernel is still there.
PARENT_POLL = 1.0
_STDERR = 2
#: Open files that host and zygote take before a cell has run: about 25, and 5 a front end. What
#: snapshots take besides is known when the policy is (``groundwork``).
LEAST_FILES = 64
#: The backends that wrap a zygote, those that do not, and how much of a policy is looked through
#: for them; what the strongest is known by to be here.
_WRAPPING = (b"bubblewrap", b"seatbelt")
_BARE = (b"landlock", b"noop")
_WRAPPER = "bwrap"
_LOOKED_AT = 1 << 16


@dataclass(frozen=True, slots=True)
class Options:
    """The kernel's command line."""

    connection_file: Path
    policy: str = "safe"
    allow_unsafe: bool = False


def parse(argv: list[str]) -> Options:
    """Read the command line; by hand, because argparse costs a kernel's start 6 ms.

    Raises ``SystemExit`` with the usage for anything unknown or said twice: an option that is
    not understood, or that another overrides, might have been a restriction.
    """
    values: dict[str, str] = {}
    allow, rest = False, list(argv)
    while rest:
        name, _, value = rest.pop(0).partition("=")
        if name == "--allow-unsafe" and not value:
            allow = True
        elif name in {"-f", "--policy"} and name not in values and (value or rest):
            values[name] = value or rest.pop(0)
        else:
            raise SystemExit(f"cellblock: unknown argument {name!r}\n{USAGE}")
    if "-f" not in values:
        raise SystemExit(USAGE)
    return Options(Path(values["-f"]), values.get("--policy", "safe"), allow)


def main(argv: list[str]) -> None:
    """Run a kernel until it is shut down."""
    options = parse(argv)
    gc.disable()
    try:
        project = _started_in()
        _check_file_limit()
        _fill_standard_descriptors()
        # Job-control shells and notebook servers share our process group; Ctrl-C is theirs.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        prestarted = [] if _may_be_wrapped(options.policy) else [launch.start()]
        reactor, kernel, cleanup = _assembled(options, project, prestarted)
    except StartError as exc:
        raise SystemExit(f"cellblock: {exc}") from None
    gc.freeze()
    gc.enable()
    try:
        _serve(reactor, kernel)
    finally:
        cleanup()


def _assembled(
    options: Options,
    project: Path,
    prestarted: list[tuple[socket.socket, int]],
) -> tuple[ZmqReactor, Kernel, Callable[[], None]]:
    """Close this process to others, then put the kernel together: all that is slow to import."""
    from cellblock.host.hardening import protect_host  # noqa: PLC0415 - after the spawn

    protect_host()
    from cellblock.jupyter.groundwork import Ground, lay, make_scratch  # noqa: PLC0415 - as above

    scratch = make_scratch()
    foreseen = None if prestarted else _begin_wrapped(options, project, scratch, prestarted)
    ground = lay(options, project, scratch)
    if isinstance(ground, Ground) and ground.wrap != foreseen:
        while prestarted:  # it began in something else than is to be around it
            launch.drop(*prestarted.pop())
    from cellblock.jupyter.assembly import assemble  # noqa: PLC0415 - slow: after the spawn

    return assemble(options, scratch, ground, prestarted)


def _begin_wrapped(
    options: Options,
    project: Path,
    scratch: Path,
    prestarted: list[tuple[socket.socket, int]],
) -> Wrapping | None:
    """Start a zygote in what the policy most likely has around it; return that."""
    from cellblock.jupyter.groundwork import foresee  # noqa: PLC0415 - as above

    foreseen = foresee(options, project, scratch)
    with contextlib.suppress(OSError):  # it is tried again, and told
        prestarted.append(launch.start(foreseen))
    return foreseen


def _may_be_wrapped(policy: str) -> bool:
    """Guess whether a zygote that starts now would have to be ended for a wrapped one.

    Nothing that reads a policy is imported yet: names of backends are looked for in its file, and
    without one the strongest is looked for. A wrong guess costs time, and nothing else.
    """
    text = _looked_through(policy)
    if any(name in text for name in (*_WRAPPING, *_BARE)):
        return any(name in text for name in _WRAPPING)
    return any(os.access(f"{folder}/{_WRAPPER}", os.X_OK) for folder in os.get_exec_path())


def _looked_through(policy: str) -> bytes:
    """Return the beginning of a policy's file; nothing for a preset."""
    try:
        with open(os.path.expanduser(policy), "rb", opener=_at_once) as file:  # noqa: PTH111
            return file.read(_LOOKED_AT)
    except (OSError, ValueError):
        return b""


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe would be waited for


def _started_in() -> Path:
    try:
        return Path.cwd()
    except OSError as exc:
        what = f"the folder it was started in: {exc.strerror}"
        raise StartError(f"{what}. Start it in one that is there.") from None


def _check_file_limit() -> None:
    # ZeroMQ aborts the process where it can't open what it needs.
    if 0 <= (limit := os.sysconf("SC_OPEN_MAX")) < LEAST_FILES:
        raise StartError(f"only {limit} files may be open. Raise it: ulimit -n 1024.")


def _fill_standard_descriptors() -> None:
    """Have something at 0 to 2: a socket that came to stand there would be taken for a terminal."""
    try:
        while (fd := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
            os.set_inheritable(fd, True)
    except OSError as exc:
        what = f"{os.devnull} can't be opened: {exc.strerror}"
        raise StartError(f"{what}. Have the container or the machine mount /dev.") from None
    os.close(fd)


def _serve(reactor: ZmqReactor, kernel: Kernel) -> None:
    reactor.on_signal(
        {
            signal.SIGINT: kernel.interrupt,
            signal.SIGTERM: reactor.stop,
            signal.SIGHUP: reactor.stop,
        },
    )
    parent = os.getppid()
    if os.environ.get("JPY_PARENT_PID"):
        _follow(parent, reactor)
    reactor.run()
    with contextlib.suppress(OSError):
        sys.stderr.flush()


def _follow(parent: int, reactor: ZmqReactor) -> None:
    """Stop when the process that started us is gone, as ipykernel does."""

    def look() -> None:
        if os.getppid() == parent:
            reactor.call_later(PARENT_POLL, look)
        else:
            reactor.stop()

    reactor.call_later(PARENT_POLL, look)
