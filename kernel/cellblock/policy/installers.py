"""Which program unpacks wheels: uv where there is one, pip otherwise."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path


def uv() -> str | None:
    """Return uv's path: the one that was installed with this interpreter, or the first on PATH.

    A kernel is often started without its environment's folder on PATH.
    """
    beside = str(Path(sys.executable).parent)
    return shutil.which("uv", path=os.pathsep.join([beside, os.environ.get("PATH", os.defpath)]))


def has_pip() -> bool:
    """Say whether this interpreter has pip."""
    return importlib.util.find_spec("pip") is not None
