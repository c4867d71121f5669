"""Starting a kernel: in the order that wastes no time.

The zygote imports what guests need, which takes longest of all, so it is spawned before anything
slow is imported here. Sockets are bound before the policy is used, so that a front end's first
messages wait in them. A policy that can't be kept does not end the kernel but answers every cell:
a kernel that merely dies tells nobody why.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import sys

from cellblock.errors import StartError
from cellblock.host.guests import spawn
from cellblock.jupyter.command_line import parse
from cellblock.jupyter.early_zygote import EarlyZygote

TYPE_CHECKING = False  # a zygote is started before typing is imported
if TYPE_CHECKING:
    from cellblock.jupyter.kernel import Kernel
    from cellblock.jupyter.reactor import ZmqReactor


#: Seconds between looks at whether whoever started the kernel is still there.
PARENT_POLL = 1.0
_STDERR = 2


def main(argv: list[str]) -> None:
    """Run a kernel until it is shut down."""
    options = parse(argv)
    gc.disable()
    try:
        _check_file_limit()
        _fill_standard_descriptors()
        # Job-control shells and notebook servers share our process group; Ctrl-C is theirs.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        early = EarlyZygote(options.policy)
        spawn.protect_host()
        from cellblock.jupyter.kernel_policy import resolve_first  # noqa: PLC0415 - slow

        config = resolve_first(options, early)
        from cellblock.jupyter.assembly import assemble  # noqa: PLC0415 - zmq, the session: slow

        reactor, kernel, cleanup = assemble(options, config, early)
    except StartError as exc:
        raise SystemExit(f"cellblock: {exc}") from None
    spawn.keep_free_memory()
    gc.freeze()
    gc.enable()
    try:
        _serve(reactor, kernel)
    finally:
        cleanup()


def _check_file_limit() -> None:
    # ZeroMQ aborts the process where it can't open what it needs.
    if 0 <= (limit := os.sysconf("SC_OPEN_MAX")) < spawn.LEAST_FILES:
        raise StartError(f"only {limit} files may be open. Raise it: ulimit -n 1024.")
    # Guests get half of it where they have sockets (``guest.confine.process``): so that is more
    # than their policy gives them, where the user may have so many.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(
        OSError, ValueError
    ):  # macOS says "infinite", and takes no such number
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _fill_standard_descriptors() -> None:
    """Open descriptors 0 to 2: a socket with such a number would be taken for a terminal."""
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
    if starter := os.environ.get("JPY_PARENT_PID"):  # stop when that is gone, as ipykernel does
        parent = os.getppid()

        def look() -> None:
            if os.getppid() != parent or _is_gone(starter):
                reactor.stop()
            else:
                reactor.call_later(PARENT_POLL, look)

        reactor.call_later(PARENT_POLL, look)
    reactor.run()
    with contextlib.suppress(OSError):
        sys.stderr.flush()


def _is_gone(starter: str) -> bool:
    """Return whether the process of this number, which started the kernel, is no more.

    It may have ended before anybody looked for a first time: then somebody else is our parent.
    With a parent outside of our pid namespace its number means nothing.
    """
    with contextlib.suppress(PermissionError, ValueError, OverflowError):
        try:
            os.kill(int(starter), 0)  # asks for permission, sends nothing
        except ProcessLookupError:
            return os.getppid() != 0
    return False
