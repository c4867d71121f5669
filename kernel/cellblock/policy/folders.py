"""cellblock's folders: those of the user (XDG Base Directory Specification), and a session's own.

A wrapped zygote waits for the imports of this module, so they are few.

A session's scratch folder is inside a private folder::

    TMPDIR/cellblock-XXXXXXXX/    private: only the host opens it, and holds its lock (flock(2))
        scratch                   the guests' (the name is ``SCRATCH``)

The session's zygote or host removes both. If they were killed, the next host that starts does
(``sweep_scratch``). The lock shows whether a host still lives: the OS kernel keeps it as long as
the host has the folder open, whatever namespaces the processes are in. No guest can open the
private folder, and so none can hold its lock.
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

    A relative path in the variable is ignored, as the specification demands. If the user has no
    home folder, the path that is returned can't exist.
    """
    return _xdg("XDG_CACHE_HOME", ".cache")


def data_folder() -> str:
    """Return the folder of the user's decisions and data: ``$XDG_DATA_HOME/cellblock``."""
    return _xdg("XDG_DATA_HOME", ".local/share")


def shipped_folder() -> str:
    """Return the folder of the templates that come with cellblock."""
    return os.path.join(os.path.dirname(os.path.dirname(__file__)), "templates")


def _xdg(variable: str, otherwise: str) -> str:
    base = os.environ.get(variable, "")
    if not os.path.isabs(base):
        home = os.path.expanduser("~")
        base = f"{home if os.path.isabs(home) else os.devnull}/{otherwise}"
    return f"{base}/cellblock"


def changes_folder() -> str:
    """Return the folder of staged changes: ``$XDG_DATA_HOME/cellblock/changes``."""
    return os.path.realpath(f"{data_folder()}/changes")


def package_folder() -> str:
    """Return the folder of installed packages: ``$XDG_DATA_HOME/cellblock/packages``."""
    return os.path.realpath(f"{data_folder()}/packages")


#: The name of a private folder. Other temporary folders of cellblock have a longer name.
_SCRATCH = re.compile(r"cellblock-[a-z0-9_]{8}")
#: The mode of a private folder that has been locked (flock(2)). The sticky bit says that a host has
#: taken the lock: if nobody holds it now, that host has ended. A folder without the bit may be one
#: that a host is just making.
_LOCKED = stat.S_IRWXU | stat.S_ISVTX
#: Seconds after which no host is still making a folder. If a folder has no sticky bit by then, and
#: only the contents that ``make_scratch`` gives it, its host was killed.
_MAKING = 3600.0
#: Locks of this process, by the folder's path.
_locks: dict[str, int] = {}


def make_scratch() -> str:
    """Make a scratch folder for guests, and lock it. Return its path, without links.

    It is inside a private folder that no other user may enter, since guests can give their own
    folder any mode. ``remove_scratch`` removes it. Raises StartError.
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
        for path in (folder, private):
            with contextlib.suppress(OSError):
                os.rmdir(path)
        message = f"a folder made in {tempfile.gettempdir()} can't be used, though it is ours"
        raise StartError(f"{message}. Give its owner all rights: umask 077.")
    _hold(private, folder)
    return folder


def scratch_name(scratch: Path) -> str:
    """Return the name that tells a scratch folder from other sessions': the private folder's."""
    return scratch.parent.name


def _hold(private: str, folder: str) -> None:
    """Lock a folder, so that no other host removes it.

    Waits for the lock, which another host of this user may hold for a moment to look at the folder.
    Without a lock, the folder would be removed after an hour, if it is still empty. On a file
    system without locks no host removes it either.
    """
    with contextlib.suppress(OSError):
        _locks[folder] = fd = os.open(private, FOLDER)
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.fchmod(fd, _LOCKED)


def remove_scratch(folder: str) -> None:
    """Remove a session's folder and all in it that can be removed."""
    remove_tree(folder)
    release_scratch(folder)


def release_scratch(folder: str) -> None:
    """Release the lock: the session's zygote, or the next host, removes the rest of the folder."""
    if (fd := _locks.pop(folder, None)) is not None:
        os.close(fd)


@functools.cache
def sweep_scratch_in_thread() -> None:
    """Sweep in a thread, once in a process: the folders of killed hosts may be large."""
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
    """Remove a private folder if its host has ended. Raises OSError if it has not."""
    with closing(os.open(f"{above}/{name}", FOLDER)) as private:
        status = os.fstat(private)
        if status.st_uid != os.geteuid():
            return
        fcntl.flock(private, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if stat.S_IMODE(status.st_mode) != _LOCKED:
            if (
                stat.S_IMODE(status.st_mode) == stat.S_IRWXU
                and time.time() - status.st_ctime > _MAKING
            ):
                _remove_empty(above, name)
            return
        # By the descriptor, since another folder may have the name by now.
        remove_tree(f"/proc/self/fd/{private}/{SCRATCH}")
        os.rmdir(f"{above}/{name}")


def _remove_empty(above: str, name: str) -> None:
    """Remove a private folder and its scratch folder, if that is empty. Raises OSError otherwise.

    Older versions of cellblock lock nothing. A folder of theirs that is in use is not empty, so it
    stays.
    """
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(f"{above}/{name}/{SCRATCH}")
    os.rmdir(f"{above}/{name}")
