"""Images: their names, and how the engine gets one without pulling anything.

``FRAME`` holds nothing: all of the interpreter is mounted from this machine, as it is now. The
other holds what ``contents`` finds of this interpreter, and its name tells from what it was made.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from typing import TYPE_CHECKING, Final

from cellblock.backends.container.wanted import Refused

if TYPE_CHECKING:
    from cellblock.backends.container.engines import Engine

#: Repository of both.
REPOSITORY: Final = "cellblock"
FRAME: Final = f"{REPOSITORY}:mounted"
#: Raised when the same interpreter would come out as another image.
_LAYOUT: Final = 1
_DIGITS: Final = 12
#: Seconds that the engine has to tell an image's id: a kernel's start waits for it.
_PATIENCE: Final = 2.0


def names(image: str) -> tuple[str, ...]:
    """Return what to look for, in order, for a policy's ``container_image``."""
    return (image,) if image else (own_name(), FRAME)


def identity(engine: Engine, wanted: tuple[str, ...]) -> str:
    """Return the id of the first image that is there. Raises Refused, OSError, SubprocessError."""
    for name in wanted:
        asked = engine.ask("image", "inspect", "--format", "{{.Id}}", name, seconds=_PATIENCE)
        if asked.returncode == 0 and (found := asked.stdout.decode("ascii", "replace").strip()):
            return found
    raise Refused(f"no image {' or '.join(wanted)}: cellblock image build")


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
