"""Where cellblock keeps what is to last."""

from __future__ import annotations

import os


def cache_folder() -> str:
    """Return where cellblock keeps history and logs: ``$XDG_CACHE_HOME/cellblock``.

    A relative one counts for nothing, as the XDG Base Directory Specification has it. Without a
    home there is no folder by the name that is returned.
    """
    return _xdg("XDG_CACHE_HOME", ".cache")


def data_folder() -> str:
    """Return where it keeps what the user decided, as above: ``$XDG_DATA_HOME/cellblock``."""
    return _xdg("XDG_DATA_HOME", ".local/share")


def state_folder() -> str:
    """Return where it keeps what the user allowed for always: ``$XDG_STATE_HOME/cellblock``."""
    return _xdg("XDG_STATE_HOME", ".local/state")


def shipped_folder() -> str:
    """Return the folder of the templates that cellblock brings along."""
    return os.path.join(os.path.dirname(os.path.dirname(__file__)), "templates")  # noqa: PTH118, PTH120


def _xdg(variable: str, otherwise: str) -> str:
    base = os.environ.get(variable, "")
    if not os.path.isabs(base):  # noqa: PTH117  # start-up: without pathlib
        home = os.path.expanduser("~")  # noqa: PTH111  # as above
        base = f"{home if os.path.isabs(home) else os.devnull}/{otherwise}"  # noqa: PTH117
    return f"{base}/cellblock"
