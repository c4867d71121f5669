"""Files of the host: a kernel's folder, files that are the user's alone, notebooks upgraded.

Links are never followed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from cellblock.descriptors import FILE, FOLDER, NEW, closing, lock
from cellblock.host.guests.spawn import import_path
from cellblock.host.session.history import check_own

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


# --- a kernel's folder ------------------------------------------------------------------------
#
# Kernels' folders lie side by side. Each holds a lock (flock(2)) for as long as its kernel lives,
# so that a later kernel tells those of the dead, and removes them.

_LOCK_NAME: Final = "lock"
_LOCK_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_APPEND_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: Seconds to wait while another kernel removes what dead ones left.
_PATIENCE: Final = 0.1


class OwnFolder:
    """The folder of one running kernel, made when the first file is, and removed with it."""

    def __init__(self, parent: Path) -> None:
        self._parent = parent
        self._name = ""
        self._fd: int | None = None
        self._lock: int | None = None

    def create(self, name: str) -> int:
        """Return a descriptor of a new file, the user's alone. Raises OSError."""
        return os.open(name, NEW, 0o600, dir_fd=self._opened_folder())

    def append(self, name: str) -> int:
        """Return a descriptor for writing at a file's end. Raises OSError."""
        return os.open(name, _APPEND_FLAGS, dir_fd=self._opened_folder())

    def read(self, name: str) -> int:
        """Return a descriptor for reading a file. Raises OSError."""
        return os.open(name, FILE, dir_fd=self._opened_folder())

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._opened_folder())

    def close(self) -> None:
        """Remove the folder with all that is in it."""
        if self._fd is None or self._lock is None:
            return
        with contextlib.suppress(OSError), self._beside() as beside:
            _remove_contents(self._fd)
            os.rmdir(self._name, dir_fd=beside)
        os.close(self._fd)
        os.close(self._lock)
        self._fd = self._lock = None

    def sweep(self) -> None:
        """Remove what kernels left that ended without doing so."""
        if not self._parent.exists():
            return
        with (
            contextlib.suppress(OSError),
            self._beside() as beside,
            closing(_open_locked(beside, fcntl.LOCK_EX)),
        ):
            for entry in tuple(os.scandir(beside)):
                if entry.name not in (self._name, _LOCK_NAME):
                    _remove_dead(beside, entry.name)

    def _opened_folder(self) -> int:
        if self._fd is None:
            # Nobody sweeps before ours is locked.
            with self._beside() as beside, closing(_open_locked(beside, fcntl.LOCK_SH)):
                self._fd = self._make(beside)
        return self._fd

    def _make(self, beside: int) -> int:
        """Make a folder, lock it and return it; one that fails half-way is left to be swept."""
        name = f"{os.getpid()}-{os.urandom(4).hex()}"
        os.mkdir(name, 0o700, dir_fd=beside)
        folder = os.open(name, FOLDER, dir_fd=beside)
        try:
            self._lock = _open_locked(folder, fcntl.LOCK_EX)
        except OSError:
            os.close(folder)
            raise
        self._name = name
        return folder

    @contextlib.contextmanager
    def _beside(self) -> Iterator[int]:
        """Open the folder that kernels' folders lie in. Raises OSError, for others' too."""
        self._parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with closing(os.open(self._parent.parent, FOLDER)) as above:
            check_own(os.fstat(above), self._parent.parent)
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._parent.name, 0o700, dir_fd=above)
            beside = os.open(self._parent.name, FOLDER, dir_fd=above)
        try:
            check_own(os.fstat(beside), self._parent)
            yield beside
        finally:
            os.close(beside)


def _open_locked(folder: int, operation: int) -> int:
    """Return the lock of a folder, held. Raises OSError when it can't be had at once."""
    fd = os.open(_LOCK_NAME, _LOCK_FLAGS, 0o600, dir_fd=folder)
    try:
        lock(fd, operation, 0.0 if operation == fcntl.LOCK_EX else _PATIENCE)
    except OSError:
        os.close(fd)
        raise
    return fd


def _remove_dead(beside: int, name: str) -> None:
    """Remove a kernel's folder unless its lock is held."""
    with contextlib.suppress(OSError):
        with closing(os.open(name, FOLDER, dir_fd=beside)) as folder:
            check_own(os.fstat(folder), name)
            with closing(_open_locked(folder, fcntl.LOCK_EX)):
                _remove_contents(folder)
        os.rmdir(name, dir_fd=beside)


def _remove_contents(folder: int) -> None:
    """Remove the files of a folder; one that has folders in it is not ours, and stays."""
    for name in os.listdir(folder):
        os.unlink(name, dir_fd=folder)


# --- a file that is the user's alone ----------------------------------------------------------


#: Policies that are remembered, and bytes of one: a SHA-256 in hexadecimal.
_MOST_ACCEPTED: Final = 64
_DIGEST_LINE: Final = 65


class PrivateFile:
    """A file in the user's cache folder, there whole or not at all; at most ``most_bytes`` large.

    One that is missing, too large, a link, no file or not the user's alone has nothing in it.
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        self._folder, self._name, self._most = path.parent, path.name, most_bytes

    def read(self) -> bytes:
        """Return what is in it. Never raises."""
        with contextlib.suppress(OSError), self._opened() as folder:
            file = os.open(self._name, FILE, dir_fd=folder)
            try:  # since ``fdopen`` leaves open what is a folder
                status = os.fstat(file)
                check_own(status, self._name)
                if stat.S_ISREG(status.st_mode) and status.st_size <= self._most:
                    with os.fdopen(file, "rb", closefd=False) as stream:
                        return stream.read(self._most)
            finally:
                os.close(file)
        return b""

    def write(self, content: bytes, *, replace: bool = True) -> None:
        """Put a new file in place of the old one. Raises OSError, and the old one stays.

        Without ``replace`` one that is there stays, too, and that is no error.
        """
        self._folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder.mkdir(mode=0o700, exist_ok=True)
        with self._opened() as folder:
            name = f".{self._name}-{os.getpid()}-{os.urandom(4).hex()}"
            file = os.open(name, NEW, 0o600, dir_fd=folder)
            try:
                with os.fdopen(file, "wb") as stream:
                    stream.write(content)
                if replace:
                    os.replace(name, self._name, src_dir_fd=folder, dst_dir_fd=folder)
                else:
                    with contextlib.suppress(FileExistsError):
                        os.link(name, self._name, src_dir_fd=folder, dst_dir_fd=folder)
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=folder)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        with closing(os.open(self._folder, FOLDER)) as folder:
            check_own(os.fstat(folder), self._folder)
            yield folder


class AcceptedPolicies:
    """Digests of policies' values that pydantic has accepted: it is not imported for them again.

    ``load.Accepted``, in a file in ``folder``.
    """

    def __init__(self, folder: Path) -> None:
        self._file = PrivateFile(folder / "accepted", _MOST_ACCEPTED * _DIGEST_LINE)

    def __contains__(self, digest: str) -> bool:
        return digest.encode() in self._file.read().split()

    def add(self, digest: str) -> None:
        """Remember it beside the last ones."""
        kept_digests = self._file.read().split()[1 - _MOST_ACCEPTED :]
        with contextlib.suppress(OSError):
            self._file.write(
                b"".join(b"%s\n" % entry for entry in (*kept_digests, digest.encode()))
            )


# --- what a guest, and front ends that do not read, can make a host hold ----------------------

#: Bytes that a host takes at most beyond what it has when its first cell runs. The sum of: the
#: costliest message of a guest with all that is made of it (220 MiB, measured); what waits for a
#: guest that does not read (48 MiB, ``guests.process``) and for front ends (16 MiB and a message,
#: ``jupyter.channels``); a cell's output that is collected (24 MiB, ``cell.output_log``) or held
#: until the cell ends (4 MiB, ``cell.quota``).
HOST_MEMORY = 320 * 2**20


# --- notebooks of old formats -----------------------------------------------------------------
#
# nbformat upgrades them, in a process with limits. It trusts what it reads: a heading's level is a
# number of signs that it writes, so that a line of a file could ask for all the memory there is.

_UPGRADE_PROGRAM: Final = (
    "import sys;sys.path[:] = sys.argv[1:];from cellblock.host.files import main;main()"
)
_STARTUP_VARIABLES: Final = ("LANG", "LC_", "LD_", "PATH", "TZ")
#: What jsonschema imports if it is there, for a format that no notebook's schema has: two seconds.
_SLOW_MODULE: Final = "rfc3987_syntax"
#: Today's major format.
FORMAT: Final = 4
#: Of the process: seconds of processor time, seconds in all, bytes of memory and of its answer.
_CPU_SECONDS: Final = 10
_PATIENCE_SECONDS: Final = 60.0
_MEMORY_BYTES: Final = 1 << 30
_LARGEST_NOTEBOOK: Final = 64 << 20


class UpgradeError(ValueError):
    """nbformat can't read it, or takes too much for it."""


def upgraded(content: bytes) -> bytes:
    """Return a notebook of today's format as JSON. Blocks for a while. Raises UpgradeError."""
    argv = [sys.executable, "-I", "-S", "-X", "utf8", "-c", _UPGRADE_PROGRAM, *import_path()]
    early = {
        name: value for name, value in os.environ.items() if name.startswith(_STARTUP_VARIABLES)
    }
    try:
        done = subprocess.run(
            argv,
            input=content,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # nbformat quotes what it reads
            env=early,
            timeout=_PATIENCE_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        raise UpgradeError("nbformat can't read it") from None
    return done.stdout


def main() -> None:
    """Upgrade what is on stdin; end by an error where that takes too much, or can't be."""
    for kind, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, _CPU_SECONDS),
        (resource.RLIMIT_DATA, _MEMORY_BYTES),
    ):
        hard = resource.getrlimit(kind)[1]
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (limit, hard))
    sys.modules[_SLOW_MODULE] = None  # type: ignore[assignment]
    import nbformat  # noqa: PLC0415 - under the limits

    text = sys.stdin.buffer.read().decode()
    notebook_text = nbformat.writes(nbformat.reads(text, as_version=FORMAT), version=FORMAT)  # type: ignore[no-untyped-call]
    content = notebook_text.encode()
    if len(content) > _LARGEST_NOTEBOOK:
        sys.exit(1)
    sys.stdout.buffer.write(content)
