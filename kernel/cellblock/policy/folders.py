"""The user's folders that cellblock keeps things in, by the XDG Base Directory Specification.

And the one of a session. A wrapped zygote waits for what is imported here, so that is little.

A session's folder is removed by its zygote, or its host. Where both were killed, whoever starts
next removes it (``sweep_scratch``). Whether a host lives says its lock (flock(2)), which the OS
kernel keeps as long as the host has the folder open, whatever namespaces either is in. The lock is
on the private folder, which no guest can open.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import re
import stat
import time

from cellblock.descriptors import FOLDER, SCRATCH, SCRATCH_PREFIX, closing, remove_tree
from cellblock.errors import StartError

TYPE_CHECKING = False  # a zygote may be started before typing is imported
if TYPE_CHECKING:
    from pathlib import Path


def cache_folder() -> str:
    """Return the folder of history and logs: ``$XDG_CACHE_HOME/cellblock``.

    A relative variable counts for nothing, as the specification has it. Without a home there is no
    folder by the name that is returned.
    """
    return _xdg("XDG_CACHE_HOME", ".cache")


def data_folder() -> str:
    """Return the folder of what the user decided: ``$XDG_DATA_HOME/cellblock``."""
    return _xdg("XDG_DATA_HOME", ".local/share")


def shipped_folder() -> str:
    """Return the folder of the templates that cellblock brings along."""
    return os.path.join(os.path.dirname(os.path.dirname(__file__)), "templates")


def _xdg(variable: str, otherwise: str) -> str:
    base = os.environ.get(variable, "")
    if not os.path.isabs(base):
        home = os.path.expanduser("~")
        base = f"{home if os.path.isabs(home) else os.devnull}/{otherwise}"
    return f"{base}/cellblock"


def changes_folder() -> str:
    """Return the folder of what sessions staged: ``$XDG_DATA_HOME/cellblock/changes``."""
    return os.path.realpath(f"{data_folder()}/changes")


def package_folder() -> str:
    """Return the folder of all policies' packages: ``$XDG_DATA_HOME/cellblock/packages``."""
    return os.path.realpath(f"{data_folder()}/packages")


#: What ``make_scratch`` calls a folder. Other folders of ours have one more word in their names.
_SCRATCH = re.compile(r"cellblock-[a-z0-9_]{8}")
#: The sticky bit says that the lock decides. It is set once there is one, so that a folder without
#: it, as of a host that is just making one, is left alone.
_LOCKED = stat.S_IRWXU | stat.S_ISVTX
#: Seconds after which nobody is making a folder any more. One that has no sticky bit by then, and
#: only what ``make_scratch`` makes, is of a host that was killed meanwhile.
_MAKING = 3600.0
#: Locks of this process, by the folder's path.
_locks: dict[str, int] = {}


def make_scratch() -> str:
    """Make a private folder for guests; return its path, without links. Raises StartError.

    It lies in one that nobody else may enter: guests may give theirs any mode.
    ``remove_scratch`` removes it.
    """
    import tempfile  # noqa: PLC0415 - slow, and not every command needs it

    try:
        private = os.path.realpath(tempfile.mkdtemp(prefix=SCRATCH_PREFIX))
        folder = f"{private}/{SCRATCH}"
        if os.access(private, os.R_OK | os.W_OK | os.X_OK):
            os.mkdir(folder, 0o700)
    except OSError as exc:
        raise StartError(f"no folder for temporary files: {exc}") from None
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        for made in (folder, private):
            with contextlib.suppress(OSError):
                os.rmdir(made)
        what = f"a folder made in {tempfile.gettempdir()} can't be used, though it is ours"
        raise StartError(f"{what}. Give its owner all rights: umask 077.")
    _hold(private, folder)
    return folder


def scratch_name(scratch: Path) -> str:
    """Return the name that a scratch folder has among all sessions': that of the one around it."""
    return scratch.parent.name


def _hold(private: str, folder: str) -> None:
    """Lock a folder, so that nobody removes it. Where there are no locks, nobody does, either.

    Another host of this user may be looking at the folder, and holds its lock for that moment:
    without a lock, the folder of a session would be removed after an hour while nothing is in it.
    """
    with contextlib.suppress(OSError):
        _locks[folder] = fd = os.open(private, FOLDER)
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.fchmod(fd, _LOCKED)


def remove_scratch(folder: str) -> None:
    """Remove a session's folder and all in it; what can't be removed stays."""
    remove_tree(folder)
    release_scratch(folder)


def release_scratch(folder: str) -> None:
    """Leave the rest of a session's folder to its zygote, or to whoever starts next."""
    if (fd := _locks.pop(folder, None)) is not None:
        os.close(fd)


@functools.cache
def sweep_scratch_in_thread() -> None:
    """Remove what killed hosts left, once in a process, in a thread: that may be much."""
    import threading  # noqa: PLC0415 - see the top

    threading.Thread(target=sweep_scratch, name="cellblock-sweep", daemon=True).start()


def sweep_scratch() -> None:
    """Remove the sessions' folders of this user whose hosts have ended. Raises nothing."""
    import tempfile  # noqa: PLC0415 - as above

    above = os.path.realpath(tempfile.gettempdir())
    with contextlib.suppress(OSError):
        for name in filter(_SCRATCH.fullmatch, os.listdir(above)):
            with contextlib.suppress(OSError):
                _sweep(above, name)


def _sweep(above: str, name: str) -> None:
    """Remove one, if its host has ended. Raises OSError where it has not, or it is no folder."""
    with closing(os.open(f"{above}/{name}", FOLDER)) as private:
        found = os.fstat(private)
        if found.st_uid != os.geteuid():
            return
        fcntl.flock(private, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if stat.S_IMODE(found.st_mode) != _LOCKED:
            if (
                stat.S_IMODE(found.st_mode) == stat.S_IRWXU
                and time.time() - found.st_ctime > _MAKING
            ):
                _remove_empty(above, name)
            return
        # By the descriptor: its name may have become another's.
        remove_tree(f"/proc/self/fd/{private}/{SCRATCH}")
        os.rmdir(f"{above}/{name}")


def _remove_empty(above: str, name: str) -> None:
    """Remove what ``make_scratch`` made, while there is nothing in it. Raises OSError otherwise.

    Older versions lock nothing: a folder of theirs that is in use has something in it, or is full
    of what a guest left, and stays.
    """
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(f"{above}/{name}/{SCRATCH}")
    os.rmdir(f"{above}/{name}")
