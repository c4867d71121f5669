"""The guest's private folder."""

from __future__ import annotations

import os
import tempfile

from cellblock.errors import StartError


def make_scratch() -> str:
    """Make it and return its path, without links. Raises StartError."""
    try:
        folder = os.path.realpath(tempfile.mkdtemp(prefix="cellblock-"))
    except OSError as exc:
        raise StartError(f"no folder for temporary files: {exc}") from None
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        os.rmdir(folder)  # noqa: PTH106 - start-up: without pathlib
        what = f"a folder made in {tempfile.gettempdir()} can't be used, though it is ours"
        raise StartError(f"{what}. Give its owner all rights: umask 077.")
    return folder
