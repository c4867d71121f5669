"""The first things that a host does: start a zygote, and close its own process to others.

The zygote imports its modules while the host imports its own. So this module runs before anything
else is imported, and uses only what is cheap of the standard library.

A kernel's zygote starts even before the policy is read, because reading takes longer than all that
comes before. It is started with the wrapping (the backend's part of the command) that the last
kernel with the same policy and folder had, which is right most of the time. That wrapping is kept
in a file in the user's cache folder (``WrappingCache``) and is only a guess. The caller compares it
with what the policy asks for before it sends the zygote anything, and ends the zygote if they
differ. After a wrong guess, an entry is not used until two starts had the same wrapping. The guess
for a new folder is the wrapping for another folder, with the new folder in its place.
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
        """The wrapping that a backend puts around a command."""

        def __call__(self, argv: list[str]) -> AbstractContextManager[list[str]]:
            """Return the wrapped command, which can be started while the context lasts."""

        @property
        def stays(self) -> bool:
            """Whether the wrapping stays as a process of its own; else it becomes the command's."""


# --- the zygote -------------------------------------------------------------------------------

#: Open files that host and zygote need before a cell has run: about 25, and 5 for each front end.
#: Snapshots need more, which ``host.session.config.check_file_limit`` checks.
LEAST_FILES = 64
#: Seconds within which a zygote must make room for a frame. It reads whenever it has no work.
SENDING = 10.0
#: The program of the zygote's interpreter, which runs before any import. Module ``site`` is not
#: imported, so no .pth file and no sitecustomize is read.
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
    """Return the absolute folders of the host's sys.path, from which the guest imports, too."""
    return [path for path in sys.path if os.path.isabs(path)]


def zygote_argv(control_fd: int) -> list[str]:
    """Return the command that starts a zygote, which a backend may wrap."""
    # Without ``..``: the folders that it leads through may not be among a backend's mounts.
    interpreter = os.path.abspath(sys.executable)
    options = ["-I", "-S", "-X", "utf8"]
    arguments = [str(control_fd), sys.prefix, *import_path()]
    return [interpreter, *options, "-c", _BOOT, *arguments]


def start(wrap: Wrap | None = None) -> tuple[socket.socket, int]:
    """Start a zygote; return the host's end of its control socket, and a pid.

    The pid is the zygote's, or that of the wrapping if this stays in front. Raises OSError.
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

    ``behind`` says that the command is a wrapping which stays in front of the zygote. Such a
    wrapping leads a process group of its own, or a Ctrl-C meant for the host would end it. A zygote
    without one leaves the host's group by ``setsid``, which the leader of a group can't call.

    The process inherits only its end of the control socket and stderr. Signals that a job-control
    shell, nohup or a notebook server had the host ignore are set back to their defaults: if SIGXCPU
    were ignored, the limit on processor time would not hold.
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
    """Kill a zygote that has no guests. It removes nothing."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    sock.close()


# --- the host's own process -------------------------------------------------------------------

_PR_SET_PDEATHSIG = 1
_PR_GET_DUMPABLE = 3
_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
# From <malloc.h>.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_REMEDY = "Start it outside of the container, or the system call filter, that refuses it."


def protect_host() -> None:
    """Make this process untraceable and without core dumps, because it holds the session key.

    Otherwise other processes of the same user could read the key (prctl(2)). Raises StartError if
    it can't be done.
    """
    try:
        traceable = _prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) or _prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0)
    except ImportError:
        problem = "this Python can't take a lock: it has no ctypes"
        raise StartError(f"{problem}. Use one that was built with libffi.") from None
    if traceable:
        raise StartError(f"it can't refuse to be traced (PR_SET_DUMPABLE). {_REMEDY}")
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    except (OSError, ValueError):
        raise StartError(f"it can't do without core dumps (RLIMIT_CORE). {_REMEDY}") from None


def keep_free_memory() -> None:
    """Have malloc keep up to 32 MiB of free memory (mallopt(3)), into which outputs are copied.

    For memory that malloc asks for anew, clearing by the OS kernel takes longer than all that is
    done with a copy of a large output.
    """
    with contextlib.suppress(AttributeError):  # a C library other than glibc
        _libc("mallopt", _M_MMAP_THRESHOLD, 16 << 20)
        _libc("mallopt", _M_TRIM_THRESHOLD, 32 << 20)


def end_with_host(host: int) -> None:
    """Have the OS kernel end this process when its parent, ``host``, ends."""
    if _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0 or os.getppid() != host:
        os._exit(1)


def set_process_name(name: bytes) -> None:
    """Set this process's name in ps(1), 15 bytes at most."""
    _prctl(_PR_SET_NAME, name)


def _libc(function: str, *arguments: int | bytes) -> int:
    import ctypes  # noqa: PLC0415 - slow, and not every Python was built with it

    return int(getattr(ctypes.CDLL(None), function)(*arguments))


_prctl = partial(_libc, "prctl")


def available_processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# --- the wrappings of earlier zygotes -----------------------------------------------------------

#: Entries that are kept, newest first, and bytes of the file that are read. An entry has some
#: 4,000.
MOST_WRAPPINGS = 16
MOST_BYTES = 1 << 18
_FILE_NAME = "wrappings"
#: Stand for a kernel's own folders in an entry. No other word begins like this, because paths here
#: are absolute.
_SCRATCH = "{scratch}"
_PROJECT = "{project}"
_SAME = "same"
_DIFFERED = "differed"
#: The fields of an entry before its words: whether it was the same as before, policy, project.
_LEAST_FIELDS = 3
_WORD_END = b"\0"
_ENTRY = b"\0\0"


class Recalled:
    """A wrapping from the cache. ``words`` are the wrapping program's name and its options."""

    stays = True

    def __init__(self, words: tuple[str, ...]) -> None:
        self.words = words

    def __call__(self, argv: list[str]) -> AbstractContextManager[list[str]]:
        """Return the command that starts ``argv`` in this wrapping."""
        program, *options = self.words
        return with_hidden_options(program, options, argv)


class WrappingCache:
    """The wrappings of earlier zygotes for this policy and project, in a file in ``folder``.

    Only entries of this Python environment count: others share the folder, and their wrappings do
    not have this one's interpreter in them. Nothing here raises; entries that can't be kept or read
    are simply missing.
    """

    def __init__(self, folder: str, policy: str, project: str, scratch: str) -> None:
        self._folder = folder
        self._project = project
        self._policy = f"{sys.executable} {sys.base_prefix} {policy}"
        self._places = ((_SCRATCH, scratch), (_PROJECT, project.rstrip("/")))

    def recall(self) -> tuple[str, ...] | None:
        """Return the words of the last zygote's wrapping; empty if it was not wrapped.

        Return None if that is not known, or differed from the wrapping before.
        """
        entries = [entry for entry in _read(self._folder) if entry[1] == self._policy]
        matching = [entry for entry in entries if entry[2] == self._project]
        for state, _, _, *words in matching or entries:
            if state == _SAME:
                return tuple(map(self._placed, words))
        return None

    def keep(self, words: tuple[str, ...]) -> None:
        """Keep the words of this zygote's wrapping for later kernels."""
        entry = [self._policy, self._project, *map(self._placeless, words)]
        entries = _read(self._folder)
        matching = [earlier for earlier in entries if earlier[1:3] == entry[:2]]
        state = _SAME if not matching or matching[0][1:] == entry else _DIFFERED
        if matching != [[state, *entry]] and all(entry):
            other_entries = [earlier for earlier in entries if earlier not in matching]
            _write(self._folder, [[state, *entry], *other_entries][:MOST_WRAPPINGS])

    def _placeless(self, word: str) -> str:
        """Return a word with this kernel's folder replaced by what stands for it."""
        for name, folder in self._places:
            if folder and (word == folder or word.startswith(f"{folder}/")):
                return name + word.removeprefix(folder)
        return word

    def _placed(self, word: str) -> str:
        """Return a word with this kernel's folder instead of what stands for it."""
        for name, folder in self._places:
            if word.startswith(name):
                return folder + word.removeprefix(name)
        return word


def _read(folder: str) -> list[list[str]]:
    """Return the entries of the file; none if it is missing, too large, or not the user's alone."""
    try:
        with open(f"{folder}/{_FILE_NAME}", "rb", opener=_open) as file:
            status = os.fstat(file.fileno())
            rights_of_others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if (
                not stat.S_ISREG(status.st_mode)
                or rights_of_others
                or status.st_uid != os.geteuid()
            ):
                return []
            entries = file.read(MOST_BYTES + 1)
    except (OSError, ValueError):
        return []
    if len(entries) > MOST_BYTES:
        return []
    parsed = [
        [os.fsdecode(word) for word in entry.split(_WORD_END)] for entry in entries.split(_ENTRY)
    ]
    return [entry for entry in parsed if len(entry) >= _LEAST_FIELDS]


def _write(folder: str, entries: list[list[str]]) -> None:
    """Replace the file by a new one, completely or not at all."""
    text = _ENTRY.join(_WORD_END.join(map(os.fsencode, entry)) for entry in entries)
    name = f"{folder}/.{_FILE_NAME}-{os.getpid()}-{os.urandom(4).hex()}"
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with open(name, "xb", opener=_open) as file:
            file.write(text)
        os.replace(name, f"{folder}/{_FILE_NAME}")
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.unlink(name)


def _open(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
