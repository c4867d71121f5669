"""A spare guest: it imports modules ahead, and serves a first cell that imports them.

While a new guest waits for its first cell, a spare guest is forked beside it, under the same locks,
in the same folder and environment. The spare guest imports what a first cell is likely to import:
the modules that the policy names (``preload_when_idle``). A kernel that waits for its launch has a
spare guest already (``jupyter.warm``), beside the guest that will serve::

    forked ──▶ importing ──▶ ready ──▶ (taken: it becomes the session's guest)
       │           │           │
       └───────────┴───────────┴─────▶ dismissed ──▶ (ended)

A first cell that names one of the modules runs in the spare guest, and the other guest is ended. At
any other first cell the spare guest is dismissed: it is stopped, and ended a little later, so that
no cell waits for its end, nor for the OS kernel to take its memory back.

Honest cells must not be able to tell the two apart, except by the time that an import takes. So the
spare guest is not used for a cell that could have changed how an import comes out (``_SETTINGS``).
Nor is it used if an import wrote anything, or would have found a module in the project's folder, or
if the cell imports one from there: modules beside a notebook are run by cells, and never because
the notebook was opened (promise P1).
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


#: Seconds that a new guest waits for a cell before a spare guest is forked beside it.
IDLE: Final = 1.0
#: Seconds that the imports may take.
PATIENCE: Final = 60.0
#: Seconds that the spare guest is kept for a first cell. Not longer, because it takes memory.
KEPT: Final = 300.0
#: Seconds until a dismissed spare guest is ended.
DISMISSED: Final = 0.5
#: Characters of a cell that is looked at. A longer cell runs as if there were no spare guest.
_MOST: Final = 1 << 16
_WORD: Final = re.compile(r"[^\W\d]\w*")
_IMPORTED_NAMES: Final = re.compile(r"^[ \t]*+(?:import|from)[ \t]++([\w., \t]++)", re.MULTILINE)
#: Words of a cell by which it may change what an import finds or does: it may change the
#: environment, the folder, where modules are looked for, limits, or run other files.
_SETTINGS: Final = frozenset({
    "basicConfig", "cd", "chdir", "env", "environ", "fchdir", "meta_path", "modules", "path_hooks",
    "path_importer_cache", "load_ext", "open", "pushd", "putenv", "reload", "run",
    "sched_setaffinity", "set_env", "setlocale", "setrlimit", "unsetenv",
})  # fmt: skip
_SEARCH_PATH: Final = {"sys", "path"}


def imported_ahead(policy: Policy) -> tuple[str, ...]:
    """Return the modules that a spare guest imports. Cells may import each of them themselves."""
    names = policy.preload_when_idle
    rules = policy.rules()
    return tuple(name for name in names if not rules.language or rules.allows_module(name))


class SpareState(Enum):
    """How far the spare guest is. A dismissed one is stopped, and will be ended."""

    forked = 0
    importing = 1
    ready = 2
    dismissed = 3


class SpareZygote(Protocol):
    """The zygote that a spare guest was forked from."""

    def keep_only(self, lineage: Lineage, user: int, pids: Iterable[int]) -> None:
        """End all processes that descend from a fork, except these."""


class SpareGuest:
    """The spare guest of a supervisor: one at most. It imports ``modules``.

    ``fork`` has the zygote fork a guest, and returns the zygote. ``folder`` is the notebook's
    folder, in which guests begin.
    """

    def __init__(
        self,
        reactor: Reactor,
        fork: Callable[[Guest], SpareZygote | None],
        modules: tuple[str, ...],
        folder: str,
    ) -> None:
        self._reactor = reactor
        self.fork_guest = fork
        self._modules = modules
        self._folder = folder
        self._names = {name.partition(".")[0] for name in modules}
        #: The names of visible files in the folder when the spare guest was forked.
        self._files_at_fork: frozenset[str] = frozenset()
        self._timer: Timer | None = None
        self._guest: Guest | None = None
        self._zygote: SpareZygote | None = None
        #: The lock report of the guest that serves; before there is one, of the spare guest itself.
        self._report: messages.LockReport | None = None
        #: Whether the spare guest was forked before there was a guest that serves.
        self.ahead = False
        self._state = SpareState.forked

    def fork_ahead(self) -> None:
        """Fork a spare guest before there is a guest that serves.

        It will be used only if that guest has the same locks.
        """
        self.ahead = True
        self._fork()

    def fork_later(self, report: messages.LockReport, *, idle: bool) -> None:
        """Fork a spare guest when a new guest has had nothing to do for a while.

        ``report`` has the new guest's locks. A spare guest that was forked ahead is kept if its
        locks are the same, and ended otherwise. No spare guest is forked if the new guest is not
        ``idle``.
        """
        ahead = self.ahead
        self.ahead = False
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
            return  # no descriptors are left, and others need them more
        self._state = SpareState.forked
        self._files_at_fork = self._visible_files()
        self._guest, self._zygote = guest, self.fork_guest(guest)
        self._end_in(PATIENCE)

    def _on_message(self, message: messages.FromGuest) -> None:
        """Have the spare guest import if its locks are right. End it at an unexpected message."""
        guest = self._guest
        state = self._state
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
        """Return whether these locks are those of the guest that serves.

        Only their names are compared: the details may be counts, which differ.
        """
        expected = self._report
        if expected is None:
            return False
        return expected.achieved.keys() == report.achieved.keys() and expected.failed.keys() == (
            report.failed.keys()
        )

    def _on_trouble(self, *_: Any) -> None:
        self.end()

    def take(self, message: Any) -> Guest | None:
        """Return the spare guest if the first request is a cell that suits it; else dismiss it.

        Queries and comm messages do not count as the first request: front ends look for widgets
        when they open a notebook, and before the first cell no handler answers.
        """
        if isinstance(message, messages.Query | messages.CommIn):
            return None
        guest = self._guest
        if guest is not None and self._state is SpareState.ready and self._suits_spare(message):
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

    def _suits_spare(self, message: Any) -> bool:
        """Return whether a request is a cell that may run in the spare guest, and gains by it."""
        if not isinstance(message, messages.Execute) or message.subshell:
            return False
        if message.template is not None or len(message.source) > _MOST:
            return False
        words = set(_WORD.findall(message.source))
        may_matter = bool(words & _SETTINGS) or words >= _SEARCH_PATH
        if may_matter or not words & self._names or self._imports_own(message.source):
            return False
        # A file that came since could have changed an import: a matplotlibrc, for example.
        return self._visible_files() <= self._files_at_fork

    def _visible_files(self) -> frozenset[str]:
        """Return the names of files beside the notebook.

        Notebooks and JupyterLab's hidden files are left out, because they come and go.
        """
        try:
            names = os.listdir(self._folder)
        except OSError:
            return frozenset()
        return frozenset(
            name for name in names if not (name.startswith(".") or name.endswith(".ipynb"))
        )

    def _imports_own(self, source: str) -> bool:
        """Return whether a cell imports a module beside the notebook, which may do anything."""
        clauses = (
            clause for imported in _IMPORTED_NAMES.findall(source) for clause in imported.split(",")
        )
        names = {clause.replace(".", " ").split()[0] for clause in clauses if clause.strip(". \t")}
        places = (f"{self._folder}/{name}" for name in names)
        return any(os.path.lexists(place) or os.path.lexists(f"{place}.py") for place in places)

    def end(self) -> None:
        """End the spare guest, and whatever it started."""
        self._stop_timer()
        guest = self._guest
        zygote = self._zygote
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
