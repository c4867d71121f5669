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

from cellblock.errors import StartError
from cellblock.host.guests import spawn as launch
from cellblock.policy.folders import cache_folder

TYPE_CHECKING = False  # a zygote is started before typing is imported
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cellblock.host.guests.wrapping_cache import Memory, Recalled
    from cellblock.host.session.config import SessionOptions, Wrapping
    from cellblock.jupyter.kernel import Kernel
    from cellblock.jupyter.reactor import ZmqReactor


USAGE = (
    "usage: python -E -P -m cellblock -f CONNECTION_FILE"
    " [--policy NAME|FILE] [--input FILE] [--allow-unsafe]"
)
#: Seconds between looks at whether whoever started the kernel is still there.
PARENT_POLL = 1.0
_STDERR = 2
#: Files in a run-time folder that open a kernel or a server.
_KEYS = ("kernel-*.json", "jpserver-*", "nbserver-*", "jupyter_cookie_secret")


class Options:
    """The kernel's command line."""

    __slots__ = ("allow_unsafe", "connection_file", "input", "policy")

    def __init__(
        self,
        connection_file: str,
        policy: str = "safe",
        *,
        allow_unsafe: bool = False,
        input: str = "",  # noqa: A002 - it is called so
    ) -> None:
        self.connection_file, self.policy = connection_file, policy
        self.allow_unsafe = allow_unsafe
        #: A file of what cells find in ``inputs``; empty for none.
        self.input = input


def parse(argv: list[str]) -> Options:
    """Parse the command line; by hand, because argparse costs a kernel's start 6 ms.

    Raises ``SystemExit`` with the usage for an option that is unknown or given twice: one that is
    ignored might have been a restriction.
    """
    values: dict[str, str] = {}
    allow, rest = False, list(argv)
    while rest:
        name, _, value = rest.pop(0).partition("=")
        if name == "--allow-unsafe" and not value:
            allow = True
        elif name in {"-f", "--policy", "--input"} and name not in values and (value or rest):
            values[name] = value or rest.pop(0)
        else:
            raise SystemExit(f"cellblock: unknown argument {name!r}\n{USAGE}")
    if "-f" not in values:
        raise SystemExit(USAGE)
    policy, given = values.get("--policy", "safe"), values.get("--input", "")
    return Options(values["-f"], policy, allow_unsafe=allow, input=given)


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
        reactor, kernel, cleanup = _assembled(options, project)
    except StartError as exc:
        raise SystemExit(f"cellblock: {exc}") from None
    gc.freeze()
    gc.enable()
    try:
        _serve(reactor, kernel)
    finally:
        cleanup()


def _assembled(options: Options, project: str) -> tuple[ZmqReactor, Kernel, Callable[[], None]]:
    """Close this process to others, then put the kernel together, which imports what is slow."""
    early = EarlyZygote(options.policy, project)
    early.start_bare()
    launch.protect_host()
    from cellblock.host.session.config import make_scratch  # noqa: PLC0415 - after the spawn

    scratch = make_scratch()
    early.start_as_before(scratch)
    from cellblock.host.session.config import (  # noqa: PLC0415 - as above
        SessionConfig,
        predict_wrapping,
        resolve,
    )

    asked = _session_options(options, project, scratch)
    early.start_in(lambda: predict_wrapping(asked))
    config = resolve(asked)
    if isinstance(config, SessionConfig):
        early.settle(config.wrap)
    from cellblock.jupyter.assembly import assemble  # noqa: PLC0415 - slow: after the spawn

    return assemble(options, scratch, config, early)


def _session_options(options: Options, project: str, scratch: str) -> SessionOptions:
    from pathlib import Path  # noqa: PLC0415 - as above

    from cellblock.host.session.config import SessionOptions  # noqa: PLC0415 - as above

    keys = Path(options.connection_file)
    return SessionOptions(
        options.policy,
        Path(project),
        Path(scratch),
        options.allow_unsafe,
        (keys, *_keys_beside(keys)),
        options.input or {},
        asks=True,
        notebook=_notebook(),
    )


def _notebook() -> Path | None:
    """Return the notebook that the kernel is for, if its environment says so."""
    from cellblock.policy.vocabulary import SESSION_NAME  # noqa: PLC0415 - after the spawn

    if SESSION_NAME not in os.environ:
        return None
    from cellblock.policy import narrow_requests as notebook  # noqa: PLC0415 - not for every kernel

    return notebook.session_notebook(os.environ)


def _keys_beside(connection_file: Path) -> Iterator[Path]:
    """Yield the files that open other kernels and servers (for later ones see ``roots``)."""
    for name in _KEYS:
        yield from connection_file.parent.glob(name)


def _started_in() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - start-up: without pathlib
    except OSError as exc:
        what = f"the folder it was started in: {exc.strerror}"
        raise StartError(f"{what}. Start it in one that is there.") from None


def _check_file_limit() -> None:
    # ZeroMQ aborts the process where it can't open what it needs.
    if 0 <= (limit := os.sysconf("SC_OPEN_MAX")) < launch.LEAST_FILES:
        raise StartError(f"only {limit} files may be open. Raise it: ulimit -n 1024.")


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
    if os.environ.get("JPY_PARENT_PID"):  # stop when that is gone, as ipykernel does
        parent = os.getppid()

        def look() -> None:
            if os.getppid() == parent:
                reactor.call_later(PARENT_POLL, look)
            else:
                reactor.stop()

        reactor.call_later(PARENT_POLL, look)
    reactor.run()
    with contextlib.suppress(OSError):
        sys.stderr.flush()


# --- the early zygote -------------------------------------------------------------------------
#
# It imports what guests need, which takes longest of all. A bare one is started first of all; one
# that a backend wraps is started in what wrapped the last one, or in what a first look at the
# policy says. Once the policy is read, a zygote in anything else is ended: it was told nothing yet.

#: Backends that wrap a zygote, those that do not, the program of the strongest, and bytes of a
#: policy file in which their names are looked for.
WRAPPING = (b"bubblewrap", b"docker", b"seatbelt")
BARE = (b"landlock", b"noop")
WRAPPER = "bwrap"
_LOOKED_AT = 1 << 16


class EarlyZygote:
    """At most one zygote, for a kernel with this policy in this folder."""

    def __init__(self, policy: str, project: str) -> None:
        self._policy, self._project = policy, project
        self._wrapped = may_be_wrapped(policy)
        #: Its end of the socket and its pid, if it is started and not taken yet.
        self._zygote: tuple[socket.socket, int] | None = None
        self._around: Wrapping | Recalled | None = None
        self._memory: Memory | None = None
        self._due: Wrapping | None = None

    def start_bare(self) -> None:
        """Start it at once, if no backend wraps it. Raises OSError."""
        if not self._wrapped:
            self._zygote = launch.start()

    def start_as_before(self, scratch: str) -> None:
        """Start it in what wrapped the last one, if that is known and proved right."""
        if self._wrapped:
            from cellblock.host.guests.wrapping_cache import Memory  # noqa: PLC0415 - as needed

            self._memory = Memory(cache_folder(), self._policy, self._project, scratch)
            self._start(self._memory.recall())

    def start_in(self, foreseen: Callable[[], Wrapping | None]) -> None:
        """Start it in the wrapping that is foreseen, if it is not started yet."""
        if self._zygote is None:
            self._start(foreseen())

    def _start(self, around: Wrapping | Recalled | None) -> None:
        if around is not None:
            with contextlib.suppress(OSError):  # it is tried again, and reported
                self._zygote = launch.start(around)
                self._around = around

    def settle(self, due: Wrapping | None) -> None:
        """End it unless it is in the wrapping that is due."""
        self._due = due
        if not _alike(self._around, due):
            self.end()

    def take(self) -> tuple[socket.socket, int]:
        """Return the zygote; another one if it is taken or was not started. Raises OSError."""
        zygote, self._zygote = self._zygote, None
        return zygote or launch.start(self._due)

    def end(self) -> None:
        """End the zygote, if it was started and is not taken."""
        zygote, self._zygote = self._zygote, None
        if zygote is not None:
            launch.drop(*zygote)

    def remember(self) -> None:
        """Keep the wrapping for the next kernel."""
        memory, self._memory = self._memory, None
        if memory is not None and self._due is not None and (words := self._due.words):
            memory.keep(words)


def _alike(around: Wrapping | Recalled | None, due: Wrapping | None) -> bool:
    if around is None or due is None:
        return around is due
    # A foreseen wrapping is equal as a value; words are made anew each time.
    return around == due or (bool(around.words) and around.words == due.words)


def may_be_wrapped(policy: str) -> bool:
    """Guess whether a zygote that starts now would have to be ended for a wrapped one.

    Nothing that reads a policy is imported yet: its file is searched for names of backends, and
    without one PATH is searched for the strongest. A wrong guess costs time, and nothing else.
    """
    text = _start_of_file(policy)
    if any(name in text for name in (*WRAPPING, *BARE)):
        return any(name in text for name in WRAPPING)
    return any(os.access(f"{folder}/{WRAPPER}", os.X_OK) for folder in os.get_exec_path())


def _start_of_file(policy: str) -> bytes:
    """Return the beginning of a policy's file; nothing for a preset."""
    try:
        with open(os.path.expanduser(policy), "rb", opener=_open_at_once) as file:  # noqa: PTH111
            return file.read(_LOOKED_AT)
    except (OSError, ValueError):
        return b""


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe would be waited for
