"""``Looks``: looks, when a cell has ended, for files that its user should hear of.

The folders are the cells', who may keep a folder locked for as long as they like. So a thread looks
(ADR 0003). The cell's end waits for the thread, at most ``PATIENCE`` seconds, so that what is found
is shown under the right cell.
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


#: Seconds that a cell's end waits for a look. A later finding is dropped.
PATIENCE: Final = 1.0


class Written(NamedTuple):
    """The findings of a look; made by the function that ``Views.look`` returns."""

    #: Why the cell does not see a ``.env`` file that its library looks for.
    secrets: Refusal | None = None
    #: Names in the cells' home folder that are as new as the cell.
    below_home: tuple[str, ...] = ()
    #: Whether any change of the project is staged.
    is_staged: bool = False
    #: The state of the commits that are staged; None if the look was not for that.
    commits: tuple[State, ...] | None = None
    #: Why the cell's library finds no GPU, though this machine has one.
    gpus: Refusal | None = None


class Looks:
    """Runs looks in a thread, one at a time."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._work: threads.Work[Written] | None = None
        self._is_under_way = False

    def begin(self, look: Callable[[], Written], done: Callable[[Written], None]) -> None:
        """Call ``look`` in a thread; then call ``done`` in the loop with what it found.

        ``done`` gets an empty ``Written`` if the look fails or takes too long, and also if an
        earlier look is still under way: a locked folder may hang one thread, but no more.
        """
        if self._is_under_way:
            done(Written())
            return

        def end(outcome: Future[Written]) -> None:
            error = outcome.exception()
            if error is not None and not isinstance(error, OSError):
                # A fault of cellblock's own must not keep the cell from ending.
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
        """Drop the finding of a look that is under way: the session ends."""
        if self._work is not None:
            self._work.forget()
