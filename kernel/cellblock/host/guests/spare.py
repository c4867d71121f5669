"""A spare guest: it imports ahead, and serves a first cell that names what it has imported.

While a new guest waits for its first cell, a spare guest is forked beside it, under the same locks,
in the same folder and environment. The spare guest imports what a first cell is likely to import:
the modules that the policy names (``preload_when_idle``). A kernel that waits for its launch has a
spare guest already (``jupyter.warm``), and a guest that is to serve. A first cell that names one of
the modules runs in the spare guest, and the other guest is ended. At any other first cell the spare
guest is stopped, and ended a little later: no cell waits for its end, nor for the OS kernel to take
its memory back.

Honest cells can't tell the two apart but by the time that an import takes. So the spare guest is
not used for a cell that could have had an import come out otherwise (``_SETTINGS``), nor when an
import wrote anything, or would have found a module of the project's, or the cell imports one: what
lies beside a notebook is run by cells, and never because the notebook was opened (promise P1).
"""

from __future__ import annotations

import os
import re
import signal
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol

from cellblock.errors import CellblockError
from cellblock.host.guests.process import Guest
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cellblock.host.guests.process import Lineage
    from cellblock.host.reactor import Reactor, Timer
    from cellblock.policy.model import Policy


#: Seconds that a new guest waits for a cell before another is forked beside it.
IDLE: Final = 1.0
#: Seconds that the imports may take, and that it is kept for a first cell: it takes memory.
PATIENCE: Final = 60.0
KEPT: Final = 300.0
#: Seconds until one that is not used is ended.
DISMISSED: Final = 0.5
#: Characters of a cell that is looked at. A longer one runs as if there were no spare guest.
_MOST: Final = 1 << 16
_WORD: Final = re.compile(r"[^\W\d]\w*")
_IMPORTED: Final = re.compile(r"^[ \t]*+(?:import|from)[ \t]++([\w., \t]++)", re.MULTILINE)
#: Words of cells that may change what an import finds or does: the environment, the folder, where
#: modules are looked for, limits, what other files do.
_SETTINGS: Final = frozenset({
    "basicConfig", "cd", "chdir", "env", "environ", "fchdir", "meta_path", "modules", "path_hooks",
    "path_importer_cache", "load_ext", "open", "pushd", "putenv", "reload", "run",
    "sched_setaffinity", "set_env", "setlocale", "setrlimit", "unsetenv",
})  # fmt: skip
_SEARCH_PATH: Final = {"sys", "path"}


def imported_ahead(policy: Policy) -> tuple[str, ...]:
    """Return what a spare guest imports: nothing that cells may not import themselves."""
    names, rules = policy.preload_when_idle, policy.rules()
    return tuple(name for name in names if not rules.language or rules.allows_module(name))


class SpareState(Enum):
    """How far it is; ``dismissed``: it is stopped, and will be ended."""

    forked = 0
    importing = 1
    ready = 2
    dismissed = 3


class SpareZygote(Protocol):
    """The zygote that a spare guest was forked from."""

    def keep_only(self, lineage: Lineage, user: int, pids: Iterable[int]) -> None:
        """End all that descends from a fork but these."""


class SpareGuest:
    """At most one for a supervisor, whose guests may have it import ``modules``.

    ``fork`` has a guest forked and returns its zygote; ``folder`` is where guests begin.
    """

    def __init__(
        self,
        reactor: Reactor,
        fork: Callable[[Guest], SpareZygote | None],
        modules: tuple[str, ...],
        folder: str,
    ) -> None:
        self._reactor, self.fork_guest, self._modules = reactor, fork, modules
        self._folder = folder
        self._names = {name.partition(".")[0] for name in modules}
        #: What lay in the folder when it was forked.
        self._beside: frozenset[str] = frozenset()
        self._timer: Timer | None = None
        self._guest: Guest | None = None
        self._zygote: SpareZygote | None = None
        #: What the locks of the guest that serves achieved; its own, before there is one.
        self._report: messages.LockReport | None = None
        #: Whether it was forked before there is one.
        self.ahead = False
        self._state = SpareState.forked

    def fork_ahead(self) -> None:
        """Fork one before there is a guest that serves, whose locks will have to be the same."""
        self.ahead = True
        self._fork()

    def fork_later(self, report: messages.LockReport, *, idle: bool) -> None:
        """Have one when nothing is asked of a new guest for a while; ``report`` has its locks.

        That is another one than was forked ahead, unless its locks are the same. None is forked
        for a guest that is not ``idle``.
        """
        ahead, self.ahead = self.ahead, False
        if ahead and self._guest is not None and self._is_equal(report):
            self._report = report
            if self._state is SpareState.ready:
                self._end_in(KEPT)
            return
        self.end()
        if self._modules and idle:
            self._report = report
            self._timer = self._reactor.call_later(IDLE, self._fork)

    def _fork(self) -> None:
        try:
            guest = Guest(self._reactor, self._on_message, self._on_trouble, self._on_trouble)
        except OSError:
            return  # it would be missing elsewhere
        self._state, self._beside = SpareState.forked, self._names_beside()
        self._guest, self._zygote = guest, self.fork_guest(guest)
        self._end_in(PATIENCE)

    def _on_message(self, message: messages.FromGuest) -> None:
        """Have it import when it has the locks of the other; anything unexpected ends it."""
        guest, state = self._guest, self._state
        match message:
            case messages.Ready(report=report) if (
                state is SpareState.forked
                and guest is not None
                and (self.ahead or self._is_equal(report))
            ):
                self._report = report
                self._state = SpareState.importing
                try:
                    guest.send(messages.Preload(modules=self._modules))
                except CellblockError:
                    self.end()
            case messages.Preloaded(same=True) if state is SpareState.importing:
                self._state = SpareState.ready
                self._end_in(KEPT)
            case _:
                self.end()

    def _is_equal(self, report: messages.LockReport) -> bool:
        """Return whether locks are those of the guest that serves; what they say may be a count."""
        own = self._report
        if own is None:
            return False
        return own.achieved.keys() == report.achieved.keys() and own.failed.keys() == (
            report.failed.keys()
        )

    def _on_trouble(self, *_: Any) -> None:
        self.end()

    def take(self, message: Any) -> Guest | None:
        """Return it, where the first request is a cell to be run there; else dismiss it.

        A query decides nothing, nor does a comm message: front ends look for widgets when they
        open a notebook, and before the first cell nobody answers.
        """
        if isinstance(message, messages.Query | messages.CommIn):
            return None
        guest = self._guest
        if guest is not None and self._state is SpareState.ready and self._is_wanted(message):
            self._guest = None
            self._stop_timer()
            return guest
        if guest is None:
            self.end()
        elif self._state is not SpareState.dismissed:
            self._state = SpareState.dismissed
            guest.signal(signal.SIGSTOP)
            self._end_in(DISMISSED)
        return None

    def _is_wanted(self, message: Any) -> bool:
        if not isinstance(message, messages.Execute) or message.subshell:
            return False
        if message.template is not None or len(message.source) > _MOST:
            return False
        words = set(_WORD.findall(message.source))
        may_matter = bool(words & _SETTINGS) or words >= _SEARCH_PATH
        if may_matter or not words & self._names or self._imports_own(message.source):
            return False
        return self._names_beside() <= self._beside  # a matplotlibrc, say, would count

    def _names_beside(self) -> frozenset[str]:
        """Return what lies beside the notebook; but notebooks and Lab's own, which come and go."""
        try:
            names = os.listdir(self._folder)
        except OSError:
            return frozenset()
        return frozenset(
            name for name in names if not (name.startswith(".") or name.endswith(".ipynb"))
        )

    def _imports_own(self, source: str) -> bool:
        """Return whether a cell imports what lies beside the notebook, which may do anything."""
        parts = (part for found in _IMPORTED.findall(source) for part in found.split(","))
        names = {part.replace(".", " ").split()[0] for part in parts if part.strip(". \t")}
        places = (f"{self._folder}/{name}" for name in names)
        return any(os.path.lexists(place) or os.path.lexists(f"{place}.py") for place in places)

    def end(self) -> None:
        """End it, and whatever it started."""
        self._stop_timer()
        guest, zygote = self._guest, self._zygote
        self._guest = self._zygote = None
        if guest is not None:
            guest.close()
            if zygote is not None and guest.lineage.session > 0:
                zygote.keep_only(guest.lineage, guest.lineage.number, ())

    def _end_in(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self._reactor.call_later(seconds, self.end)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
