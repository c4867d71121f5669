"""Byte code of the modules that guests had to compile.

Python keeps the byte code of imported modules beside their source (``__pycache__``). A guest can't
write there, and some installers (uv) make no byte code, so each session would compile the same
packages again. So guests report which source files they compiled, and a background process of the
host has Python keep byte code of these, as an import does, but without running anything.

Contract: all that a guest's report does is to choose among the source files of packages and of the
standard library, under the very folder names from which this interpreter imports them. No cell can
write there, so the file that is checked is the file that is compiled. A name that leads there from
elsewhere, by a link that a cell might change meanwhile, is not looked at (promise P13). Nothing
here raises.
"""

from __future__ import annotations

import contextlib
import os
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellblock.guest import installed
from cellblock.host.guests import background
from cellblock.policy.folders import cache_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cellblock.host.reactor import Reactor

#: Files that guests of one session may report.
MOST_NAMES: Final = 10_000
_PROGRAM: Final = """\
import resource
os.umask(mask)
sys.dont_write_bytecode = False
resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
from cellblock.host.guests.byte_code import keep, read_names
keep(read_names())
"""
#: Imports what every guest imports, whatever its policy names.
_IMPORTS: Final = """\
os.umask(mask)
sys.dont_write_bytecode = False
import cellblock.guest.setup
"""
_NAMES_FILE: Final = "names"
_OWN_FOLDER: Final = str(Path(__file__).parents[2])


class ByteCode:
    """Keeps byte code for the sessions of one kernel, in one background process at a time.

    The process is started a while after guests have reported files.
    """

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        #: All names that were reported, in order, and how many of them a process was started for.
        self._names_known: dict[str, None] = {}
        self._names_handled = 0
        self._busy = False

    def keep_later(self, compiled: Sequence[str]) -> None:
        """Have byte code of these files kept.

        If Python is told to keep none (PYTHONDONTWRITEBYTECODE), only that of this package is kept,
        because the host itself does not heed Python's variables.
        """
        if sys.platform != "linux":
            return
        own_alone = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
        roots = tuple(f"{root}/" for root in ([_OWN_FOLDER] if own_alone else _roots()))
        names = [name for name in compiled if name.startswith(roots)]
        self._names_known.update(dict.fromkeys(names[: MOST_NAMES - len(self._names_known)]))
        self._go_on()

    def _go_on(self) -> None:
        if not self._busy and self._names_handled < len(self._names_known):
            self._busy = True
            self._reactor.call_later(background.AFTER, self._start)

    def _start(self) -> None:
        names = list(self._names_known)[self._names_handled :]
        self._names_handled = len(self._names_known)
        files_given = {_NAMES_FILE: "\0".join(names).encode(errors="replace")}
        target = Path(cache_folder(), "byte-code", _NAMES_FILE)
        try:
            background.start(self._reactor, _PROGRAM, target, files_given, self._on_ended)
        except (OSError, ValueError):
            self._busy = False

    def _on_ended(self) -> None:
        self._busy = False
        self._go_on()


def stale_imports() -> tuple[str, Path] | None:
    """Return how to make byte code of what every guest imports, if it is missing.

    One module of IPython and one of this package are looked at. Byte code that other modules lack
    is made when a guest reports them.
    """
    ours = Path(_OWN_FOLDER, "guest", "setup.py")
    packages = filter(installed.is_packages, sys.path)
    theirs = (Path(folder, "IPython", "core", "interactiveshell.py") for folder in packages)
    looked_at = [ours, *filter(Path.is_file, theirs)][:2]
    if all(Path(cache_from_source(str(path))).is_file() for path in looked_at):
        return None
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):
        return None
    return _IMPORTS, Path(cache_folder(), "byte-code", _NAMES_FILE)


def _roots() -> list[str]:
    """Return the folders from which modules are imported, by the names used for that."""
    packages = [folder.rstrip("/") for folder in filter(installed.is_packages, sys.path)]
    return [*packages, os.path.dirname(os.__file__), _OWN_FOLDER]


def read_names() -> list[str]:
    """Return the names that the host gave this background process."""
    return Path(_NAMES_FILE).read_text("utf-8").split("\0")


def keep(names: Iterable[str]) -> None:
    """Write the byte code of those ``names`` that are source files in folders of modules.

    Runs in the background process.
    """
    roots = [(f"{root}/", f"{os.path.realpath(root)}/") for root in _roots()]
    for name in names:
        places = [real + name.removeprefix(root) for root, real in roots if name.startswith(root)]
        if not places or not name.endswith(".py"):
            continue
        with contextlib.suppress(Exception):  # the file is not Python, or the folder not writable
            cache = os.path.dirname(cache_from_source(places[0]))
            # No ``..`` and no link: an installer may have made one into a folder that cells write
            # to.
            if os.path.realpath(places[0]) == places[0] and os.path.realpath(cache) == cache:
                SourceFileLoader("", name).get_code("")
