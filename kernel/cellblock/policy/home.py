"""Where cellblock keeps what is to last."""

from __future__ import annotations

import os


def cache_folder() -> str:
    """Return where cellblock keeps history and logs: ``$XDG_CACHE_HOME/cellblock``.

    A relative one counts for nothing, as the XDG Base Directory Specification has it. Without a
    home there is no folder by the name that is returned.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # noqa: PTH117  # start-up: without pathlib
        home = os.path.expanduser("~")  # noqa: PTH111  # as above
        base = f"{home if os.path.isabs(home) else os.devnull}/.cache"  # noqa: PTH117
    return f"{base}/cellblock"
