"""Byte code of what guests had to compile.

Python keeps the byte code of what it imports beside the source (``__pycache__``). A guest can't,
and some installers leave it out (uv), so each session would compile the same packages again. A
guest says what it compiled, and a process of the host's has Python keep byte code of that: as an
import does, but nothing is run.

Contract: a guest's word chooses among the files of installed packages and the standard library,
and nothing else of it is used. Nothing here raises.
"""

from __future__ import annotations

import contextlib
import os
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellblock.host.guests import background
from cellblock.policy.folders import cache_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cellblock.host.session.types import Reactor

#: Files of a session that are looked at.
MOST: Final = 10_000
_PROGRAM: Final = """\
import resource
os.umask(mask)
sys.dont_write_bytecode = False
resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
from cellblock.host.guests.byte_code import keep, read_names
keep(read_names(), [*sys.argv[3:], os.path.dirname(os.__file__)])
"""
_NAMES: Final = "names"
_OWN: Final = f"{Path(__file__).parents[2]}/"


class ByteCode:
    """Has byte code kept for the sessions of one kernel, by one process at a time.

    That begins a while after it was asked for.
    """

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        #: All names that were told, and how many of them are dealt with.
        self._told: dict[str, None] = {}
        self._done = 0
        self._busy = False

    def keep_later(self, compiled: Sequence[str]) -> None:
        """Have it kept for these files; for this package's alone where Python is to keep none.

        The host is of this package, and reads no variable of Python's.
        """
        if sys.platform != "linux":
            return
        all_of_it = not os.environ.get("PYTHONDONTWRITEBYTECODE")
        told = [name for name in compiled if all_of_it or name.startswith(_OWN)]
        self._told.update(dict.fromkeys(told[: MOST - len(self._told)]))
        self._go_on()

    def _go_on(self) -> None:
        if not self._busy and self._done < len(self._told):
            self._busy = True
            self._reactor.call_later(background.AFTER, self._start)

    def _start(self) -> None:
        names, self._done = list(self._told)[self._done :], len(self._told)
        given = {_NAMES: b"\0".join(map(os.fsencode, names))}
        target = Path(cache_folder(), "byte-code", _NAMES)
        try:
            background.start(self._reactor, _PROGRAM, target, given, self._ended)
        except (OSError, ValueError):
            self._busy = False

    def _ended(self) -> None:
        self._busy = False
        self._go_on()


def read_names() -> list[str]:
    """Return the names that the host gave its process."""
    return [os.fsdecode(name) for name in Path(_NAMES).read_bytes().split(b"\0")]


def keep(names: Iterable[str], roots: Sequence[str]) -> None:
    """Have Python keep byte code of the source files among ``names`` that lie in ``roots``."""
    within = tuple(f"{os.path.realpath(root)}/" for root in roots)
    for name in names:
        # What an import finds at a name is what a link there leads to; the folder is what counts.
        folder = f"{os.path.realpath(os.path.dirname(name))}/"
        if name == os.path.normpath(name) and name.endswith(".py") and folder.startswith(within):
            with contextlib.suppress(Exception):  # what is no Python, or of another's folder
                SourceFileLoader("", name).get_code("")
