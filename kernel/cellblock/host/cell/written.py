"""What a cell wrote that its reader is told of: looked for in folders that cells may keep locked.

So a thread looks, and the cell's end waits for it, for a moment (ADR 0183).
"""

from __future__ import annotations

import traceback
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from cellblock.host import threads

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from cellblock.host.reactor import Reactor
    from cellblock.host.services.changes import State
    from cellblock.render.outcomes import Refusal


#: Seconds that a cell's end waits: what comes later is not told.
PATIENCE: Final = 1.0


class Written(NamedTuple):
    """What a look found.

    ``secrets`` is why a file of settings is not there, ``gpus`` why no GPU is, ``below_home`` are
    names in ``~`` that are as new as the cell, ``is_staged`` is whether anything is, and
    ``commits`` is the state of the commits that are staged; None where nobody looked.
    """

    secrets: Refusal | None = None
    below_home: tuple[str, ...] = ()
    is_staged: bool = False
    commits: tuple[State, ...] | None = None
    gpus: Refusal | None = None


class Looks:
    """Looks when a cell has ended, one look at a time."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._work: threads.Work[Written] | None = None
        self._is_under_way = False

    def begin(self, look: Callable[[], Written], done: Callable[[Written], None]) -> None:
        """Have ``look`` called; ``done`` gets in the loop what it found, which is nothing if late.

        While an earlier look still waits for a folder, nobody looks.
        """
        if self._is_under_way:
            done(Written())
            return

        def end(outcome: Future[Written]) -> None:
            error = outcome.exception()
            if error is not None and not isinstance(error, OSError):
                # A fault of ours costs what would be told, not the cell's end.
                traceback.print_exception(error)
            done(Written() if error is not None else outcome.result())

        work = partial(self._look, look)
        self._work = threads.begin(self._reactor, work, end, seconds=PATIENCE)

    def _look(self, look: Callable[[], Written]) -> Written:
        self._is_under_way = True
        try:
            return look()
        finally:
            self._is_under_way = False

    def close(self) -> None:
        """Tell nobody any more: the session ends."""
        if self._work is not None:
            self._work.forget()
