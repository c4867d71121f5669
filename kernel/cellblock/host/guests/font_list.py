"""matplotlib's list of fonts, made once for an environment and put into each session's folder.

matplotlib looks for fonts when it is first imported and keeps what it found in its cache folder
(``matplotlib.font_manager``). Guests have theirs in the scratch folder, which begins empty, so each
session would look again: 0.1 s of the first plot.

Contract: the list is made by a process of the host's own that reads the environment's packages and
the system's fonts, and nothing that a guest or a checkout has written. It is kept in the user's
cache folder, where no cell can write; a guest gets a copy. Nothing here raises, and nobody waits
for it: without a list matplotlib makes one, as it does anywhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellblock.guest import installed
from cellblock.host.guests import background
from cellblock.policy.folders import cache_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cellblock.host.session.types import Reactor

#: Bytes of one: it has some 200 for each font.
MOST_BYTES: Final = 1 << 22
#: Where matplotlib finds fonts, besides its own, that guests can read too.
_FONTS: Final = ("/usr/share/fonts", "/usr/local/share/fonts")
#: matplotlib leaves it in the folder that is its home.
_PROGRAM: Final = """\
import matplotlib.font_manager
[name] = [name for name in os.listdir() if name.startswith("fontlist")]
os.replace(name, f"{sys.argv[2]}.{name}")
"""


def place(scratch: Path) -> None:
    """Put the list for this environment, where there is one, where a new session's guests look."""
    with contextlib.suppress(OSError, ValueError):
        found = _kept(_key())
        if found is None:
            return
        with open(found, "rb", opener=_open) as file:
            status = os.fstat(file.fileno())
            others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if not stat.S_ISREG(status.st_mode) or others or status.st_uid != os.geteuid():
                return
            content = file.read(MOST_BYTES)
        folder = scratch / ".matplotlib"
        folder.mkdir(mode=0o700)
        (folder / found.name.partition(".")[2]).write_bytes(content)


def make_later(reactor: Reactor) -> None:
    """Have the list made in a while, if matplotlib is there and no list that is up to date.

    For kernels: a program that uses a sandbox has no child that it does not know of.
    """
    if sys.platform == "linux":
        reactor.call_later(background.AFTER, lambda: _make_if_needed(reactor))


def _make_if_needed(reactor: Reactor) -> None:
    with contextlib.suppress(OSError, ValueError):
        key = _key()
        found = _kept(key)
        if key and (found is None or found.stat().st_mtime < max(_changed(), default=0)):
            background.start(reactor, _PROGRAM, _folder() / key)


def _folder() -> Path:
    return Path(cache_folder(), "matplotlib")


def _key() -> str:
    """Return a name for the matplotlib that guests import; empty where there is none."""
    for folder in filter(installed.is_packages, sys.path):
        with contextlib.suppress(OSError):
            status = os.stat(f"{folder}/matplotlib/font_manager.py")
            facts = (folder, status.st_mtime_ns, status.st_size)
            return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]
    return ""


def _kept(key: str) -> Path | None:
    """Return the list with this name."""
    if not key:
        return None
    return next(iter(_folder().glob(f"{key}.fontlist*")), None)


def _changed() -> Iterator[float]:
    """Yield when something was last put in or taken out of each folder with fonts."""
    for root in _FONTS:
        for folder, _, _ in os.walk(root):
            yield os.stat(folder).st_mtime


def _open(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
