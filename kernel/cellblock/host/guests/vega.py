"""Vega, as vl-convert bundles it: once for a user and a version, between cells.

vl-convert has Vega as modules, and takes 1.3 s and more to make one script of them. A process of
the host's own does that a while after a kernel began, and leaves the script in the user's cache
folder, which no guest can write. Guests of sessions that begin without it bundle Vega themselves
(``guest.library_patches``): the host waits for neither.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellblock.guest import installed
from cellblock.host.files import PrivateFile
from cellblock.host.guests import background
from cellblock.policy.folders import cache_folder

if TYPE_CHECKING:
    from cellblock.host.session.types import Reactor
    from cellblock.wire.messages import Prepare

_MOST_BYTES: Final = 8 << 20
_PROGRAM: Final = """\
import vl_convert
with open("vega.js", "w", encoding="utf-8") as file:
    file.write(vl_convert.javascript_bundle())
os.replace("vega.js", sys.argv[2])
"""


def read() -> bytes:
    """Return Vega; empty where it is not there. Never raises."""
    path = _path()
    return PrivateFile(path, _MOST_BYTES).read() if path is not None else b""


def make_later(reactor: Reactor, session: Prepare) -> None:
    """Have it bundled in a while, if this session could show it and began without. For kernels."""
    if sys.platform == "linux" and session.charts == "pages" and not session.vega:
        reactor.call_later(background.AFTER, lambda: _make_if_needed(reactor))


def _make_if_needed(reactor: Reactor) -> None:
    with contextlib.suppress(OSError, ValueError):
        path = _path()
        if path is not None and not read():
            background.start(reactor, _PROGRAM, path)


def _path() -> Path | None:
    """Return where the script is, by vl-convert's version; None where that is not installed."""
    for folder in filter(installed.is_packages, sys.path):
        for found in Path(folder).glob("vl_convert_python-*.dist-info"):
            return Path(cache_folder(), "vega", f"{found.stem}.js")
    return None
