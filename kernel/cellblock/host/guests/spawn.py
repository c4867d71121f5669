"""The first things that a host does: start a zygote, and close its own process to others.

The zygote's imports overlap the host's, so this runs before anything else is imported: standard
library only, and of that only what is cheap.

A zygote starts before its policy is read, in the command that started the last kernel's zygote for
the same policy and folder: to read a policy takes longer than all that comes before, and the
command is the same most of the time. What stands before it, if anything does, is kept in a file in
the user's cache folder (``WrappingCache``). It is a guess, and nothing more. Who starts a zygote in
it compares it with what the policy asks for, before the zygote is told anything, and ends the
zygote where they differ. After a wrong guess, an entry is not used until two starts had the same
wrapping. A new folder's guess is what wrapped another folder's zygote, with this one in its place.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import stat
import sys
from functools import partial

from cellblock.descriptors import with_hidden_options
from cellblock.errors import StartError

TYPE_CHECKING = False  # typing is not imported yet

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Protocol

    class Wrap(Protocol):
        """What a backend puts in front."""

        def __call__(self, argv: list[str]) -> AbstractContextManager[list[str]]:
            """Return the command that starts ``argv`` behind it, and can so long."""

        @property
        def stays(self) -> bool:
            """Whether it stays in front, as a process of its own; else it becomes ``argv``'s."""


# --- the zygote -------------------------------------------------------------------------------

#: Open files that host and zygote take before a cell has run: about 25, and 5 a front end. What
#: snapshots take besides is known when the policy is (``host.session.config.check_file_limit``).
LEAST_FILES = 64
#: Seconds that a zygote may take to make room for a frame: it reads whenever it is not at work.
SENDING = 10.0
#: Runs in the zygote before any import: no site, so no .pth file and no sitecustomize is read.
_BOOT = (
    "import sys, os;"
    "os.chdir('/');"  # libraries look for settings in the working folder, which is a checkout's
    "os.getsid(0) == os.getpid() or os.setsid();"  # a container's first process leads one
    "sys.path[:] = sys.argv[3:];"
    "sys.prefix = sys.exec_prefix = sys.argv[2];"
    "from cellblock.guest.reaper import stand_between;"
    "reaper_pipe = stand_between(int(sys.argv[1]));"
    "from cellblock.guest import mounter;"
    "line = mounter.fork();"
    "from cellblock.guest.zygote import main;"
    "main(int(sys.argv[1]), reaper_pipe, line)"
)


def import_path() -> list[str]:
    """Return the host's sys.path without what is relative: the guest imports from there."""
    return [path for path in sys.path if os.path.isabs(path)]


def zygote_argv(control_fd: int) -> list[str]:
    """Return the command that a backend may wrap."""
    interpreter = os.path.abspath(sys.executable)  # no mount has what a ``..`` leads through
    options = ["-I", "-S", "-X", "utf8"]
    arguments = [str(control_fd), sys.prefix, *import_path()]
    return [interpreter, *options, "-c", _BOOT, *arguments]


def start(wrap: Wrap | None = None) -> tuple[socket.socket, int]:
    """Start a zygote; return our end of its control socket, and its pid or what stays in front's.

    Raises OSError.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ours.settimeout(SENDING)
    argv = zygote_argv(theirs.fileno())
    try:
        if wrap is None:
            return ours, _spawn(argv, theirs)
        with wrap(argv) as command:
            return ours, _spawn(command, theirs, behind=wrap.stays)
    finally:
        theirs.close()


def _spawn(argv: list[str], theirs: socket.socket, *, behind: bool = False) -> int:
    """Start a command with an empty environment and return its pid.

    ``behind`` says that it is another's that stays in front. That leads a process group of its
    own, or it would end of a Ctrl-C that is meant for the host; the zygote leaves the host's with
    ``setsid``, which a leader can't.

    Only its end of the control socket and stderr are inherited. Signals that a job-control
    shell, nohup or a notebook server had us ignore are set back to their defaults: an ignored
    SIGXCPU would be a limit that nobody keeps.
    """
    start_process = partial(os.posix_spawn, setpgroup=0) if behind else os.posix_spawn
    os.set_inheritable(theirs.fileno(), True)
    null = os.open(os.devnull, os.O_RDWR)
    try:
        return start_process(
            argv[0],
            argv,
            {},
            file_actions=[(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, null, 1)],
            setsigmask=[],
            setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
        )
    finally:
        os.close(null)


def drop(sock: socket.socket, pid: int) -> None:
    """End a zygote that has no guests; it removes nothing."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    sock.close()


# --- a process of the host's own --------------------------------------------------------------

_PR_SET_PDEATHSIG = 1
_PR_GET_DUMPABLE = 3
_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # <malloc.h>
_REMEDY = "Start it outside of the container, or the system call filter, that refuses it."


def protect_host() -> None:
    """Make this process untraceable and core-less: it holds the session key (prctl(2)).

    Raises StartError where it can't be done: others of the same user could read the key.
    """
    try:
        traceable = _prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) or _prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0)
    except ImportError:
        what = "this Python can't take a lock: it has no ctypes"
        raise StartError(f"{what}. Use one that was built with libffi.") from None
    if traceable:
        raise StartError(f"it can't refuse to be traced (PR_SET_DUMPABLE). {_REMEDY}")
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    except (OSError, ValueError):
        raise StartError(f"it can't do without core dumps (RLIMIT_CORE). {_REMEDY}") from None


def keep_free_memory() -> None:
    """Have malloc keep up to 32 MiB that are free (mallopt(3)): large outputs are copied there.

    Memory that the OS kernel has to clear first takes longer than all that is done with a copy.
    """
    with contextlib.suppress(AttributeError):  # another C library
        _libc("mallopt", _M_MMAP_THRESHOLD, 16 << 20)
        _libc("mallopt", _M_TRIM_THRESHOLD, 32 << 20)


def end_with_host(host: int) -> None:
    """Have the OS kernel end this process when its parent, ``host``, ends."""
    if _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0 or os.getppid() != host:
        os._exit(1)


def set_process_name(name: bytes) -> None:
    """Set the name in ps(1), 15 bytes at most."""
    _prctl(_PR_SET_NAME, name)


def _libc(function: str, *arguments: int | bytes) -> int:
    import ctypes  # noqa: PLC0415 - slow, and not every Python was built with it

    return int(getattr(ctypes.CDLL(None), function)(*arguments))


_prctl = partial(_libc, "prctl")


def available_processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


#: Entries that are kept, newest first, and bytes of a file that is read: one has some 4,000.
MOST = 16
MOST_BYTES = 1 << 18
_NAME = "wrappings"
#: Stand for a kernel's own folders. No word begins so: paths here are absolute.
_SCRATCH, _PROJECT = "{scratch}", "{project}"
_SAME, _DIFFERED = "same", "differed"
#: What stands before an entry's words: whether it is as before, policy, project.
_HEAD = 3
_WORD, _ENTRY = b"\0", b"\0\0"


class Recalled:
    """A way to wrap a zygote; ``words`` are the program's name and its options."""

    stays = True

    def __init__(self, words: tuple[str, ...]) -> None:
        self.words = words

    def __call__(self, argv: list[str]) -> AbstractContextManager[list[str]]:
        """Return the command that starts ``argv`` behind it."""
        program, *options = self.words
        return with_hidden_options(program, options, argv)


class WrappingCache:
    """The file in ``folder``, as far as it is about kernels with this policy and project.

    And in this environment: others share the folder, and what goes around theirs has not this
    one's interpreter in it. Nothing here raises: what can't be kept or read is not there.
    """

    def __init__(self, folder: str, policy: str, project: str, scratch: str) -> None:
        self._folder, self._project = folder, project
        self._policy = f"{sys.executable} {sys.base_prefix} {policy}"
        self._places = ((_SCRATCH, scratch), (_PROJECT, project.rstrip("/")))

    def recall(self) -> tuple[str, ...] | None:
        """Return what stood before the last zygote's command: nothing, where nothing wrapped it.

        None where that is not known, or was not the same as before.
        """
        kept = [each for each in _read(self._folder) if each[1] == self._policy]
        mine = [each for each in kept if each[2] == self._project]
        for state, _, _, *words in mine or kept:
            if state == _SAME:
                return tuple(map(self._placed, words))
        return None

    def keep(self, words: tuple[str, ...]) -> None:
        """Remember what stands before this one's command."""
        entry = [self._policy, self._project, *map(self._placeless, words)]
        kept = _read(self._folder)
        mine = [each for each in kept if each[1:3] == entry[:2]]
        state = _SAME if not mine or mine[0][1:] == entry else _DIFFERED
        if mine != [[state, *entry]] and all(entry):
            others = [each for each in kept if each not in mine]
            _write(self._folder, [[state, *entry], *others][:MOST])

    def _placeless(self, word: str) -> str:
        for name, folder in self._places:
            if folder and (word == folder or word.startswith(f"{folder}/")):
                return name + word.removeprefix(folder)
        return word

    def _placed(self, word: str) -> str:
        for name, folder in self._places:
            if word.startswith(name):
                return folder + word.removeprefix(name)
        return word


def _read(folder: str) -> list[list[str]]:
    """Return what is kept; nothing where the file is missing, or not the user's alone."""
    try:
        with open(f"{folder}/{_NAME}", "rb", opener=_open) as file:
            status = os.fstat(file.fileno())
            others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if not stat.S_ISREG(status.st_mode) or others or status.st_uid != os.geteuid():
                return []
            entries = file.read(MOST_BYTES + 1)
    except (OSError, ValueError):
        return []
    if len(entries) > MOST_BYTES:
        return []
    kept = [[os.fsdecode(word) for word in each.split(_WORD)] for each in entries.split(_ENTRY)]
    return [each for each in kept if len(each) >= _HEAD]


def _write(folder: str, entries: list[list[str]]) -> None:
    """Put a new file in place of the old one, whole or not at all."""
    text = _ENTRY.join(_WORD.join(map(os.fsencode, entry)) for entry in entries)
    name = f"{folder}/.{_NAME}-{os.getpid()}-{os.urandom(4).hex()}"
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with open(name, "xb", opener=_open) as file:
            file.write(text)
        os.replace(name, f"{folder}/{_NAME}")
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.unlink(name)


def _open(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
