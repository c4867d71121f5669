"""The user's folders that cellblock keeps things in, by the XDG Base Directory Specification.

Imported before anything else at a kernel's start: without pathlib.
"""

from __future__ import annotations

import os


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
