"""Images: their names, and how the engine gets one without pulling anything.

``FRAME`` holds nothing: all of the interpreter is mounted from this machine, as it is now. The
other holds what ``contents`` finds of this interpreter, and its name tells from what it was made.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from typing import Final

#: Repository of both.
REPOSITORY: Final = "cellblock"
FRAME: Final = f"{REPOSITORY}:mounted"
#: Raised when the same interpreter would come out as another image.
_LAYOUT: Final = 1
_DIGITS: Final = 12


def names(image: str) -> tuple[str, ...]:
    """Return what to look for, in order, for a policy's ``container_image``."""
    return (image,) if image else (own_name(), FRAME)


def own_name() -> str:
    """Return what the image of this interpreter and its packages, as they are now, is called."""
    facts = [_LAYOUT, sys.version, sys.prefix, sys.base_prefix, os.uname().machine]
    told = json.dumps([*facts, [_folder(path) for path in sys.path if path.startswith("/")]])
    return f"{REPOSITORY}:{hashlib.sha256(told.encode()).hexdigest()[:_DIGITS]}"


def _folder(path: str) -> list[object]:
    """Return what changes when something is installed there: distributions, with their versions."""
    try:
        entries = os.listdir(path)  # noqa: PTH208 - start-up
    except OSError:
        return [path]
    return [path, sorted(name for name in entries if name.endswith((".dist-info", ".egg-info")))]
