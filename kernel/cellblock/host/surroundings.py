"""What a trial's guest tries its locks on, and what of it was touched, as the host sees.

A guest says what it was refused. Where that can be looked at from outside, it is: a probe that
left a trace has passed, whatever the guest says of it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import secrets
import signal
import socket
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellblock.guest import removal
from cellblock.host.history import default_path
from cellblock.policy.paths import within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

#: Names of listeners on loopback, and of those on local sockets.
PORTS: Final = (
    "tcp",
    "tcp_fast_open",
    "mptcp",
    "udp",
    "listed",
    "unlisted_port",
    "turn_connection",
)
#: What listens at the port of another, at an address of its own.
_ELSEWHERE: Final = ("unlisted_host", "listed", "127.0.0.2")
SOCKETS: Final = {"path": "unix_socket", "abstract": "abstract_socket"}
_TEXT: Final = "cellblock's own, for a trial\n"
_FILES: Final = ("secret", "movable", "removable", "long")
#: Where there may be a folder, beside that for temporary files: one may be cells' to write to.
_PLACES: Final = ("/tmp", "/var/tmp")  # noqa: S108 - what is made there is made by mkdtemp
_MODE, _WHEN = 0o600, 1_000_000_000


class Surroundings:
    """Folders, listeners and a process, all of them made for one trial. Raises OSError.

    ``outside`` is a folder of no root's; ``inside`` is to be a read root, with ``denied`` in it.
    """

    def __init__(self, write_roots: Iterable[str]) -> None:
        self.base = _made_away_from(tuple(write_roots))
        self.outside, self.inside = self.base / "outside", self.base / "inside"
        self.denied = self.inside / "denied"
        #: In the host's environment, and in no guest's.
        self.variable = f"CELLBLOCK_TRIAL_{secrets.token_hex(8)}"
        os.environ[self.variable] = "set"
        self._listeners: dict[str, socket.socket] = {}
        self.process, self._leash = 0, -1
        try:
            self.process, self._leash = _sentinel()
            self._fill()
            for name, listener in self._listen():
                self._listeners[name] = listener
            self._nice = _nice(self.process)
            self._limit = resource.prlimit(self.process, resource.RLIMIT_NOFILE)
        except BaseException:
            self.close()
            raise

    @property
    def ports(self) -> dict[str, int]:
        """Return where somebody listens on loopback, by probe."""
        names = (*PORTS, _ELSEWHERE[0])
        return {name: self._listeners[name].getsockname()[1] for name in names}

    @property
    def listed(self) -> str:
        """Return the address that is to be on the list, where the policy has one."""
        return f"127.0.0.1:{self.ports['listed']}"

    @property
    def sockets(self) -> dict[str, str]:
        """Return where somebody listens on local sockets, by kind."""
        return {"path": str(self.outside / "socket"), "abstract": f"\0{self.variable}"}

    def _fill(self) -> None:
        for folder in (self.outside, self.inside, self.inside / "folder", self.denied):
            folder.mkdir(mode=0o700)
        for path in (*(self.outside / name for name in _FILES), self.inside / "file"):
            path.write_text(_TEXT, encoding="ascii")
            path.chmod(_MODE)
            os.utime(path, (_WHEN, _WHEN))
        for name in ("file", "linked"):
            (self.denied / name).write_text(_TEXT, encoding="ascii")
        with contextlib.suppress(OSError):  # a file system without: that probe is unwitnessed
            (self.inside / "earlier").hardlink_to(self.denied / "linked")

    def _listen(self) -> Iterator[tuple[str, socket.socket]]:
        for name in PORTS:
            kind = socket.SOCK_DGRAM if name == "udp" else socket.SOCK_STREAM
            yield name, _bound(socket.AF_INET, kind, ("127.0.0.1", 0))
        name, other, host = _ELSEWHERE
        port = self._listeners[other].getsockname()[1]
        yield name, _bound(socket.AF_INET, socket.SOCK_STREAM, (host, port))
        for where, name in SOCKETS.items():
            yield name, _bound(socket.AF_UNIX, socket.SOCK_STREAM, self.sockets[where])

    def touched(self) -> set[str]:
        """Return the probes that left a trace."""
        looks: dict[str, Callable[[], bool]] = {
            "write_file": lambda: _changed(self.outside / "secret"),
            "hard_link": lambda: (self.outside / "secret").stat().st_nlink > 1,
            "make_file": (self.outside / "new").exists,
            "move_file": lambda: not (self.outside / "movable").exists(),
            "remove": lambda: not (self.outside / "removable").exists(),
            "truncate": lambda: _changed(self.outside / "long"),
            "write_readable_file": lambda: _changed(self.inside / "file"),
            "chmod": lambda: (self.inside / "file").stat().st_mode & 0o777 != _MODE,
            # Writing moves the time on; setting it as the probe does takes it back.
            "utime": lambda: (self.inside / "file").stat().st_mtime < _WHEN,
            "limit_of_another": self._is_limited,
            "priority_of_another": lambda: _nice(self.process) != self._nice,
        }
        looks |= {name: partial(_called, sock) for name, sock in self._listeners.items()}
        return {name for name, look in looks.items() if _shows(look)}

    def _is_limited(self) -> bool:
        return resource.prlimit(self.process, resource.RLIMIT_NOFILE) != self._limit

    def close(self) -> None:
        """Leave nothing behind."""
        os.environ.pop(self.variable, None)
        for listener in self._listeners.values():
            listener.close()
        if self.process:
            os.close(self._leash)
            os.kill(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)
            self.process = 0
        removal.remove(str(self.base))


def _made_away_from(roots: tuple[str, ...]) -> Path:
    """Make a folder where no cell may write. Raises OSError where there is no such place."""
    for above in dict.fromkeys((tempfile.gettempdir(), *_PLACES, str(default_path().parents[1]))):
        real = os.path.realpath(above)
        if any(within(real, root) for root in roots):
            continue
        with contextlib.suppress(OSError):
            return Path(tempfile.mkdtemp(prefix="cellblock-trial-", dir=real))
    raise OSError("there is no folder for a trial that cells may not write to")


def _bound(family: int, kind: int, address: object) -> socket.socket:
    made = socket.socket(family, kind)
    made.bind(address)  # type: ignore[arg-type]
    if kind == socket.SOCK_STREAM:
        made.listen()
    made.setblocking(False)
    return made


def _shows(look: Callable[[], bool]) -> bool:
    """Say whether there is a trace; what can't be looked at any more has one."""
    try:
        return look()
    except OSError:
        return True


def _called(listener: socket.socket) -> bool:
    try:
        if listener.type == socket.SOCK_STREAM:
            listener.accept()[0].close()
        else:
            listener.recv(1)
    except BlockingIOError:
        return False
    return True


def _changed(path: Path) -> bool:
    return path.read_text(encoding="ascii", errors="replace") != _TEXT


def _nice(process: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, process)


def _sentinel() -> tuple[int, int]:
    """Start a process that ends when the descriptor is closed; return its pid, and that."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(theirs)
            os.read(ours, 1)
        finally:
            os._exit(0)
    os.close(ours)
    return pid, theirs
