"""``main``: starts a kernel, in the order that loses the least time, and runs it.

The zygote's imports take longest, so it is spawned before anything slow is imported here. Sockets
are bound before the policy is used, so that a front end's first messages wait in them. If the
policy can't be used, the kernel starts all the same and answers every cell with the reason: a
kernel that ends tells its user nothing.
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


#: Seconds between two checks whether the process that started the kernel still runs.
PARENT_POLL = 1.0
_STDERR = 2


def main(argv: list[str]) -> None:
    """Run a kernel until it is shut down."""
    options = parse(argv)
    gc.disable()
    try:
        _check_file_limit()
        _fill_standard_descriptors()
        # A notebook server or a shell may share the kernel's process group. Ctrl-C is for them.
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
    """Raise the limit on open files as far as possible. Raises StartError if it is too low."""
    # ZeroMQ aborts the process if it can't open its descriptors.
    if 0 <= (limit := os.sysconf("SC_OPEN_MAX")) < spawn.LEAST_FILES:
        raise StartError(f"only {limit} files may be open. Raise it: ulimit -n 1024.")
    # Guests with sockets get half of the limit (``guest.confine.process``). Raised as far as the
    # user may, half is usually more than their policy gives them.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(
        OSError, ValueError
    ):  # macOS says "infinite", and takes no such number
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _fill_standard_descriptors() -> None:
    """Open descriptors 0 to 2 if they are closed, or a socket could take the place of stdout."""
    try:
        while (fd := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
            os.set_inheritable(fd, True)
    except OSError as exc:
        problem = f"{os.devnull} can't be opened: {exc.strerror}"
        raise StartError(f"{problem}. Mount /dev in the container or on the machine.") from None
    os.close(fd)


def _serve(reactor: ZmqReactor, kernel: Kernel) -> None:
    """Run the loop until the kernel is shut down, or the process that started it has ended."""
    reactor.on_signal(
        {
            signal.SIGINT: kernel.interrupt,
            signal.SIGTERM: reactor.stop,
            signal.SIGHUP: reactor.stop,
        },
    )
    if starter := os.environ.get("JPY_PARENT_PID"):
        # ipykernel, too, stops when the process of this number has ended.
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
    """Return whether the process of this number, which started the kernel, has ended.

    It may have ended before the first check, so comparing parents is not enough. If the parent is
    outside of the kernel's pid namespace, the number means nothing, and the answer is False.
    """
    with contextlib.suppress(PermissionError, ValueError, OverflowError):
        try:
            os.kill(int(starter), 0)  # asks for permission, sends nothing
        except ProcessLookupError:
            return os.getppid() != 0
    return False
