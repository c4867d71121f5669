"""The user's folders that cellblock keeps things in, by the XDG Base Directory Specification.

And the one of a session. A wrapped zygote waits for what is imported here, so that is little.
"""

from __future__ import annotations

import contextlib
import os
import tempfile

from cellblock.errors import StartError


def cache_folder() -> str:
    """Return the folder of history and logs: ``$XDG_CACHE_HOME/cellblock``.

    A relative variable counts for nothing, as the specification has it. Without a home there is no
    folder by the name that is returned.
    """
    return _xdg("XDG_CACHE_HOME", ".cache")


def data_folder() -> str:
    """Return the folder of what the user decided: ``$XDG_DATA_HOME/cellblock``."""
    return _xdg("XDG_DATA_HOME", ".local/share")


def state_folder() -> str:
    """Return the folder of what the user allowed for always: ``$XDG_STATE_HOME/cellblock``."""
    return _xdg("XDG_STATE_HOME", ".local/state")


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


def make_scratch() -> str:
    """Make a private folder for guests; return its path, without links. Raises StartError.

    It lies in one of the same name that nobody else may enter: guests may give theirs any mode.
    """
    try:
        private = os.path.realpath(tempfile.mkdtemp(prefix="cellblock-"))
        folder = f"{private}/{os.path.basename(private)}"
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
    return folder
